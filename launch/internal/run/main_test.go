package run_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/inpeer"
	"github.com/elrun/elrun/launch/internal/proc"
)

// TestMain runs the tests, or a program of a test if the environment says so. The records of the tests' jobs are not written to the user's home folder.
func TestMain(m *testing.M) {
	if end := os.Getenv(wordVariable); end != "" {
		if err := playWord(end); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dir, err := os.MkdirTemp("", "run-test-")
	if err = errors.Join(err, os.Setenv("XDG_STATE_HOME", dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(dir)
		os.Exit(status)
	}))
}

// wordVariable is the environment variable that makes the test binary a program that says hello, and how it ends.
const wordVariable = "LAUNCH_TEST_WORD"

// playWord says hello by the ID in the first argument, prints whether it is watched, and ends in the given way.
func playWord(end string) error {
	a, err := inpeer.OpenLink(proc.ChildFD)
	if err != nil {
		return err
	}
	order, err := a.Hello(context.Background(), "job", elastic.Member{ID: elastic.ID(os.Args[1])})
	if err != nil {
		return err
	}
	fmt.Println("watched", order.Watched)
	switch end {
	case "exec":
		return syscall.Exec("/bin/sleep", []string{"sleep", "300"}, os.Environ())
	case "close":
		return a.Close()
	}
	<-a.LauncherGone.Done()
	return nil
}
