package k8s

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// playWord, as the first argument, makes the test binary a peer. The number of steps and the
// minimum time of a step follow.
const playWord = "play"

func TestMain(m *testing.M) {
	switch args := os.Args[1:]; {
	case len(args) == 3 && args[0] == playWord:
		os.Exit(play(args[1], args[2]))
	case len(args) == 2 && args[0] == sandboxWord:
		os.Exit(enterSandbox(args[1]))
	case len(args) > 0 && args[0] == orphanWord:
		os.Exit(orphan(len(args)))
	}
	flag.Bool("long", false, "run the long forms")
	flag.Parse()
	os.Exit(process.WithElrun(m.Run))
}

// long reports whether the flag -long is set.
func long() bool { return flag.Lookup("long").Value.(flag.Getter).Get().(bool) }

// play is the main function of a peer.
func play(steps, pace string) int {
	n, err := strconv.ParseInt(steps, 10, 64)
	if err != nil {
		return 2
	}
	d, err := time.ParseDuration(pace)
	if err != nil {
		return 2
	}
	if err := train(context.Background(), n, d); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
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
		fmt.Println("step", step, "of", t.Comm.Size())
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
