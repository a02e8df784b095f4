package ssh

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// roleVariable is an environment variable that makes the test binary a peer. Its value is the
// number of steps and the minimum time of a step in nanoseconds, or programRole and the name of a
// job.
const roleVariable = "ELRUN_SSH_ROLE"

func TestMain(m *testing.M) {
	if role, ok := os.LookupEnv(roleVariable); ok {
		os.Exit(play(role))
	}
	flag.Bool("long", false, "run the long forms")
	flag.Parse()
	os.Exit(process.WithElrun(m.Run))
}

// long reports whether the flag -long is set.
func long() bool { return flag.Lookup("long").Value.(flag.Getter).Get().(bool) }

// play is the main function of a peer. role is the value of roleVariable.
func play(role string) int {
	if name, ok := strings.CutPrefix(role, programRole); ok {
		return program().Main(context.Background(), launch.Options{Job: name})
	}
	var steps int64
	var pace time.Duration
	if _, err := fmt.Sscanf(role, "%d %d", &steps, &pace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := train(context.Background(), steps, pace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// role returns the assignment of roleVariable that makes the test binary a peer with this number of
// steps and this minimum time of a step.
func role(steps int64, pace time.Duration) string {
	return roleVariable + "=" + strconv.FormatInt(steps, 10) + " " + strconv.FormatInt(int64(pace), 10)
}

// samples is the number of samples in a step.
const samples = 24

// train adds up the numbers of all samples of all steps. A sample that is lost or counted twice changes the result.
func train(ctx context.Context, steps int64, pace time.Duration) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	var step int64
	total := make([]float64, 1)
	for t := range g.Steps(ctx, elastic.Vectors(&step, &total), steps) {
		sum := make([]float64, 1)
		for lo, hi := t.Part(samples); lo < hi; lo++ {
			sum[0] += float64(int(step)*samples + lo)
		}
		<-time.After(pace)
		if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[float64]); err != nil {
			continue
		}
		total[0] += sum[0]
		step++
		if t.Rank == 0 {
			fmt.Println("step", step, "of", t.Comm.Size())
		}
	}
	if err := g.Err(); err != nil {
		return err
	}
	fmt.Printf("total %.0f\n", total[0])
	return g.Report(elastic.Result{})
}

// total returns the line that each peer prints at the end of a complete job.
func total(steps int64) string {
	n := steps * samples
	return fmt.Sprintf("total %d\n", n*(n-1)/2)
}
