package attack

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// limit is what only a hang exceeds, on a machine however loaded.
const limit = 90 * time.Second

// Variables in the environment of the tests and of what they start.
const (
	elrunVariable = "ATTACK_ELRUN" // path of elrun, made once by TestMain
	stepsVariable = "ATTACK_STEPS" // of the job; set for its peers only
	stopVariable  = "ATTACK_STOP"  // a file: once it is there the job ends
)

// TestMain builds elrun and runs the tests, or is a peer of a job.
func TestMain(m *testing.M) {
	if os.Getenv(stepsVariable) != "" {
		os.Exit(play())
	}
	flag.Bool("long", false, "attack for longer and measure the members' steps")
	flag.Parse()
	os.Exit(withElrun(m.Run))
}

// long reports whether the long forms are wanted.
func long() bool { return flag.Lookup("long").Value.(flag.Getter).Get().(bool) }

// withElrun builds elrun for run.
func withElrun(run func() int) int {
	dir, err := os.MkdirTemp("", "elrun-attack-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "elrun")
	build := exec.Command("go", "build", "-o", path, "github.com/elrun/elrun/cmd/elrun")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(elrunVariable, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}
