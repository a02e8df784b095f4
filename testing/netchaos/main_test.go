package netchaos

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// limit is so long that only a hang exceeds it, even on a loaded machine.
const limit = process.Limit

// roleVariable is the environment variable with the role of a process that the tests start from this binary.
const roleVariable = "NETCHAOS_ROLE"

// TestMain builds elrun and runs the tests, or runs a role if roleVariable is set. doc.go explains
// the flags.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	flag.Bool("long", false, "the long forms of all tests")
	flag.Int("runs", 0, "faults of a test; 0 means as many as the form has")
	flag.Float64("minutes", 0, "how long the quiet test runs; 0 means as long as the form takes")
	flag.Uint64("seed", 0, "seed of the random faults; 0 means that of the clock")
	flag.String("keep", "", "folder in which event logs and outputs are left")
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // six, because tests mostly wait for other processes
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(process.WithElrun(m.Run))
}

// flagged returns the value of a flag of TestMain.
func flagged[T any](name string) T {
	return flag.Lookup(name).Value.(flag.Getter).Get().(T)
}

// times returns how many faults a test makes: the flag -runs, or a default for the short or the long form.
func times(short, long int) int {
	if n := flagged[int]("runs"); n > 0 {
		return n
	}
	return pick(short, long)
}

// pick returns the value for the short or the long form of a test.
func pick[T any](short, long T) T {
	if flagged[bool]("long") {
		return long
	}
	return short
}

// parallel lets the short form of a test run in parallel with other tests, because a short form
// mostly waits. Long forms measure times, so they run one after the other.
func parallel(t *testing.T) {
	t.Helper()
	if !flagged[bool]("long") && flagged[int]("runs") == 0 {
		t.Parallel()
	}
}

// folder returns the folder to which a test writes its logs.
func folder(t *testing.T) string {
	t.Helper()
	keep := flagged[string]("keep")
	if keep == "" {
		return t.TempDir()
	}
	dir := filepath.Join(keep, filepath.FromSlash(t.Name()))
	makeDir(t, dir)
	return dir
}

// makeDir creates an empty folder.
func makeDir(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
}
