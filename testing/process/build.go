package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	module        = "github.com/elrun/elrun/"
	elrunVariable = "PROCESS_TEST_ELRUN" // path of elrun; WithElrun sets it
)

// WithElrun builds elrun, calls run and returns its result. If elrun cannot be built, it prints why to standard error and returns
// 1. It is for TestMain, with m.Run.
func WithElrun(run func() int) int {
	status, err := withElrun(run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

func withElrun(run func() int) (status int, err error) {
	dir, err := os.MkdirTemp("", "elrun-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "elrun")
	if err := Build(path, "cmd/elrun"); err != nil {
		return 0, err
	}
	// elrun keeps the outcome of each job in a state directory. The tests must not use the directory
	// of the user who runs them.
	if err := errors.Join(os.Setenv(elrunVariable, path), os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))); err != nil {
		return 0, err
	}
	return run(), nil
}

// Elrun returns the path of the elrun that WithElrun has built.
func Elrun() string { return os.Getenv(elrunVariable) }

// Example returns the path of an example program of this module. The first call for a name builds the program, beside the elrun
// that WithElrun has built. Tests that run in parallel must not ask for the same name.
func Example(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(Elrun()), name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := Build(path, "examples/"+name); err != nil {
		t.Fatal(err)
	}
	return path
}

// Build builds the command of this module that is in a folder. The binary is written to path. As in a distribution, it is static
// and has no debug information. The error has the output of the go command.
func Build(path, folder string) error {
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, module+folder)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", folder, err, out)
	}
	return nil
}

// Self returns the path of the running test binary.
func Self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// jobName returns a name made from the name of the test, the ID of the test process and the time.
func jobName(t testing.TB) string {
	name := regexp.MustCompile(`[^a-zA-Z0-9]+`).ReplaceAllString(strings.TrimPrefix(t.Name(), "Test"), "-")
	return fmt.Sprintf("%.20s-%d-%d", name, os.Getpid(), time.Now().UnixMicro()%1e8)
}
