package chaos

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// limit is so long that only a hang exceeds it, even on a loaded machine.
const limit = process.Limit

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(specVariable); ok {
		os.Exit(play(text))
	}
	flag.Bool("long", false, "run the long forms")
	flag.Int("runs", 0, "runs of the tests of kills")
	flag.String("transport", "", "transport of the tests of kills and of shared memory")
	flag.Float64("minutes", 0, "length of TestSoak")
	flag.String("keep", "", "folder for the event logs of failed tests")
	flag.Uint64("seed", 0, "seed of what is done when to whom; 0 makes one")
	flag.Parse()
	os.Exit(process.WithElrun(m.Run))
}

// option returns the value of a flag of TestMain.
func option[T any](name string) T {
	return flag.Lookup(name).Value.(flag.Getter).Get().(T)
}

// pick returns the value for the short or the long form of a test.
func pick[T any](short, long T) T {
	if option[bool]("long") {
		return long
	}
	return short
}

// chance returns a source of random numbers for a test, and logs its seed if the test fails.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := option[uint64]("seed")
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("-seed=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
