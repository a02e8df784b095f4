package attack

import (
	"flag"
	"os"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// These environment variables configure the peers that the tests start.
const (
	stepsVariable = "ATTACK_STEPS" // number of steps
	stopVariable  = "ATTACK_STOP"  // path of a file; when it exists the job ends
	roleVariable  = "ATTACK_ROLE"  // action of the dishonest member: forge or cheat; empty if all are honest
)

// TestMain builds elrun and runs the tests, or runs a peer if the environment says so.
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

// long reports whether the flag -long is set.
func long() bool { return flag.Lookup("long").Value.(flag.Getter).Get().(bool) }
