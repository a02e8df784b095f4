package differential_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hang is how long mpirun may take before the test assumes that it hangs.
const hang = 5 * time.Minute

// openMPI is the compiled program with its list of cases.
type openMPI struct {
	program string
	cases   string
}

// newOpenMPI compiles testdata/openmpi.c and writes the list of cases. If Open MPI is missing, it skips the test; in CI, where
// Open MPI is installed, it fails the test.
func newOpenMPI(t *testing.T, cases []testCase) openMPI {
	t.Helper()
	for _, tool := range []string{"mpicc", "mpirun"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, fmt.Sprintf("no %s: install Open MPI (Debian: apt-get install openmpi-bin libopenmpi-dev)", tool))
		}
	}
	dir := t.TempDir()
	m := openMPI{filepath.Join(dir, "openmpi"), filepath.Join(dir, "cases")}
	out, err := exec.CommandContext(t.Context(), "mpicc", "-O1", "-o", m.program, "testdata/openmpi.c").CombinedOutput()
	if err != nil {
		t.Fatalf("mpicc: %v\n%s", err, out)
	}
	var list strings.Builder
	for _, c := range cases {
		fmt.Fprintln(&list, c)
	}
	if err := os.WriteFile(m.cases, []byte(list.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return m
}

func missing(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("ELRUN_CI") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// run runs all cases at n ranks. It returns the output of each rank: its results, one after the
// other.
func (o openMPI) run(t *testing.T, n int) [][]byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, "mpirun", "--oversubscribe", "-n", strconv.Itoa(n), o.program, o.cases, dir)
	cmd.Env = append(os.Environ(), settings()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mpirun: %v\n%s", err, out)
	}
	results := make([][]byte, n)
	for rank := range results {
		b, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(rank)))
		if err != nil {
			t.Fatal(err)
		}
		results[rank] = b
	}
	return results
}

// settings returns settings that let Open MPI run in a container: as root, without ssh, on this host only, and without the system
// call that copies between processes. The settings also turn off the vector code for reductions. This code saturates or wraps
// sums of 8-bit integers, depending on their position in the vector. The plain code always wraps, as elrun does.
func settings() []string {
	return []string{
		"OMPI_ALLOW_RUN_AS_ROOT=1",
		"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"OMPI_MCA_plm=isolated",
		"OMPI_MCA_btl=self,vader",
		"OMPI_MCA_btl_vader_single_copy_mechanism=none",
		"OMPI_MCA_op=^avx",
		"OMPI_MCA_hwloc_base_binding_policy=none",
		"OMPI_MCA_mpi_yield_when_idle=1",
	}
}
