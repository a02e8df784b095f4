package attack

import (
	"flag"
	"os"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// Variables in the environment of the peers that the tests start.
const (
	stepsVariable = "ATTACK_STEPS" // of the job
	stopVariable  = "ATTACK_STOP"  // a file: once it is there the job ends
	roleVariable  = "ATTACK_ROLE"  // forge or cheat: what the dishonest member does; else none is
)

// TestMain builds elrun and runs the tests, or is a peer of a job.
func TestMain(m *testing.M) {
	if os.Getenv(stepsVariable) != "" {
		os.Exit(play())
	}
	flag.Bool("long", false, "attack for longer and measure the members' steps")
	flag.String("cpus", "", "processors of the job, as taskset names them; empty for all")
	flag.String("only", "", "names of the attacks to make, with commas between; empty for all")
	flag.Parse()
	os.Exit(process.WithElrun(m.Run))
}

// long reports whether the long forms are wanted.
func long() bool { return flag.Lookup("long").Value.(flag.Getter).Get().(bool) }
