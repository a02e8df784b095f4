package cores

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// printVariable is the name of an environment variable. If it is set, the test binary prints Count
// instead of running tests.
const printVariable = "ELRUN_TEST_PRINT_CORES"

func TestMain(m *testing.M) {
	if os.Getenv(printVariable) != "" {
		fmt.Println(Count())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// In a cgroup with a quota of one processor, and in a subgroup of it, Count is 1.
func TestRealCgroup(t *testing.T) {
	if runtime.NumCPU() < 2 {
		missing(t, "one processor, of which no quota takes any")
	}
	group := newGroup(t)
	for _, dir := range []string{group, filepath.Join(group, "below")} {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ >"$1/cgroup.procs" && exec "$2"`, "sh", dir, os.Args[0])
		cmd.Env = append(os.Environ(), printVariable+"=1")
		out, err := cmd.Output()
		if err != nil || strings.TrimSpace(string(out)) != "1" {
			t.Errorf("%s: %q, error %v; want 1 core", dir, out, err)
		}
	}
}

// newGroup creates a cgroup with a quota of one processor and a subgroup. If it cannot, it skips
// the test with the reason.
func newGroup(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "no root: cgroups cannot be made")
	}
	for parent, files := range map[string]map[string]string{
		"/sys/fs/cgroup":             {"cpu.max": "100000 100000"},
		"/sys/fs/cgroup/cpu":         {"cpu.cfs_quota_us": "100000"},
		"/sys/fs/cgroup/cpu,cpuacct": {"cpu.cfs_quota_us": "100000"},
	} {
		dir := filepath.Join(parent, fmt.Sprintf("elrun-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		t.Cleanup(func() {
			if err := errors.Join(os.RemoveAll(filepath.Join(dir, "below")), os.Remove(dir)); err != nil {
				t.Error(err)
			}
		})
		if limited(dir, files) == nil {
			return dir
		}
	}
	missing(t, "no cgroup with a quota of processors' time can be made")
	return ""
}

// limited writes the settings of a group and creates a subgroup.
func limited(dir string, files map[string]string) error {
	for name, text := range files {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			return err // a folder outside a cgroup has no such file
		}
		_, err = f.WriteString(text)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return os.Mkdir(filepath.Join(dir, "below"), 0o700)
}

// missing skips a test, or fails it in CI, where all tests must run.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("ELRUN_CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}
