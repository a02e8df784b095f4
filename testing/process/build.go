package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	module        = "github.com/elrun/elrun/"
	elrunVariable = "PROCESS_TEST_ELRUN" // path of elrun; WithElrun sets it
)

// WithElrun builds elrun, calls run and returns its result. If elrun cannot be built, WithElrun
// prints the error to standard error and returns 1. TestMain calls it with m.Run.
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

// UserProgram returns the path of a program whose only file has the given text, as a user would write it. The first call for a name
// builds the program, beside the elrun that WithElrun has built, with flags for the go command. Tests that run in parallel must not
// ask for the same name.
func UserProgram(t testing.TB, name, text string, flags ...string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(Elrun()), name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	// The overlay gives the file a path that is always the same, because the path is part of the
	// key in the cache of the go command.
	file, source := "/user/"+name+".go", filepath.Join(t.TempDir(), name+".go")
	overlay := source + ".json"
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: source}})
	if err := errors.Join(err, os.WriteFile(source, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := link(path, append(flags, "-overlay="+overlay, file)...); err != nil {
		t.Fatal(err)
	}
	return path
}

// Build builds the command of this module that is in a folder. The binary is written to path. As in
// a distribution, the binary is static and has no debug information. The error has the output of
// the go command, which gets flags.
func Build(path, folder string, flags ...string) error {
	return link(path, append(flags, module+folder)...)
}

// link builds a command, which the last of args names, and writes the binary to path.
//
// The go command caches the binaries that it links for "go run", but not for "go build". So "go
// run" links a program once for the tests of all packages. With -exec=cp it copies the binary to
// path and does not run it.
func link(path string, args ...string) error {
	cmd := exec.Command("go", slices.Concat([]string{"run", "-exec=cp", "-ldflags=-s -w"}, args, []string{path})...)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.TrimPrefix(args[len(args)-1], module), err, out)
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
