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
	elrunVariable = "PROCESS_TEST_ELRUN" // path of elrun, set by WithElrun
)

// WithElrun builds elrun, calls run and returns its result, or 1 if elrun cannot be built,
// which is told on standard error. It is for TestMain, with m.Run.
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
	// How their jobs ended is not kept in the home of who runs the tests.
	if err := errors.Join(os.Setenv(elrunVariable, path), os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))); err != nil {
		return 0, err
	}
	return run(), nil
}

// Elrun returns the path of the elrun that WithElrun has built.
func Elrun() string { return os.Getenv(elrunVariable) }

// Build builds a command of this module, which is named by its folder, as a file, static as
// what is distributed. The error has what the go command says.
func Build(path, folder string) error {
	cmd := exec.Command("go", "build", "-o", path, module+folder)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", folder, err, out)
	}
	return nil
}

// Self returns the path of the test's own binary.
func Self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// jobName makes a name from that of the test, the test process and the time.
func jobName(t testing.TB) string {
	name := regexp.MustCompile(`[^a-zA-Z0-9]+`).ReplaceAllString(strings.TrimPrefix(t.Name(), "Test"), "-")
	return fmt.Sprintf("%.20s-%d-%d", name, os.Getpid(), time.Now().UnixMicro()%1e8)
}
