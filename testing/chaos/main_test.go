package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// limit is what only a hang exceeds, on a machine however loaded.
const limit = 60 * time.Second

// elrunVariable names the elrun that TestMain has built.
const elrunVariable = "CHAOS_ELRUN"

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
	os.Exit(withElrun(m.Run))
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

// chance returns the random numbers of a test, whose seed is shown if it fails.
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

// withElrun builds elrun for run.
func withElrun(run func() int) int {
	dir, err := os.MkdirTemp("", "elrun-chaos-")
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
