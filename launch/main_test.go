package launch

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// How the jobs of the tests ended is not kept in the home of who runs them.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "launch-test-")
	if err = errors.Join(err, os.Setenv("XDG_STATE_HOME", dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(dir)
		os.Exit(status)
	}))
}
