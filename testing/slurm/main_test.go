package slurm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// The first argument selects a role of the test binary.
const (
	playWord = "play" // a peer
	hostWord = "host" // the first process of a host
)

func TestMain(m *testing.M) {
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == playWord:
		os.Exit(play(os.Getenv("TRAIN_DIR")))
	case len(args) == 3 && args[0] == hostWord:
		os.Exit(beHost(args[1], args[2]))
	}
	flag.Bool("long", false, "run the long forms")
	flag.Parse()
	os.Exit(process.WithElrun(m.Run))
}

// long reports whether the flag -long is set.
func long() bool { return flag.Lookup("long").Value.(flag.Getter).Get().(bool) }

// play is the main function of a peer, which reads and writes its files in dir.
func play(dir string) int {
	if err := train(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const (
	// steps is the number of steps in a job, and samples is the number of samples in a step.
	steps   = 500
	samples = 24
	// pace is the minimum time of a step while the job's folder has no file named finishFile.
	pace       = 200 * time.Millisecond
	finishFile = "finish"
)

// train adds up the numbers of all samples of all steps. A sample that is lost or counted twice changes the result. A peer that
// leaves writes its state to a file, and a new job resumes from the latest such file.
func train(ctx context.Context, dir string) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	step, total, err := latest(dir)
	if err != nil {
		return err
	}
	began := step
	for t := range g.Steps(ctx, elastic.Vectors(&step, &total), steps) {
		sum := make([]float64, 1)
		for lo, hi := t.Part(samples); lo < hi; lo++ {
			sum[0] += float64(int(step)*samples + lo)
		}
		if _, err := os.Stat(filepath.Join(dir, finishFile)); err != nil {
			<-time.After(pace)
		}
		if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[float64]); err != nil {
			continue
		}
		total[0] += sum[0]
		step++
	}
	if err := g.Err(); errors.Is(err, elastic.ErrLeft) {
		text := fmt.Sprintf("%d %.0f", step, total[0])
		return os.WriteFile(filepath.Join(dir, fmt.Sprintf("left-%06d-%s", step, g.Self().ID.Short())), []byte(text), 0o600)
	} else if err != nil {
		return err
	}
	fmt.Printf("began after step %d\ntotal %.0f\n", began, total[0])
	return g.Report(elastic.Result{})
}

// latest returns the state of the highest step that a peer has written to dir, or step 0 if there
// is none.
func latest(dir string) (step int64, total []float64, err error) {
	total = make([]float64, 1)
	all, err := filepath.Glob(filepath.Join(dir, "left-*")) // sorted by step
	if err != nil || len(all) == 0 {
		return 0, total, err
	}
	b, err := os.ReadFile(all[len(all)-1])
	if err == nil {
		_, err = fmt.Sscan(string(b), &step, &total[0])
	}
	return step, total, err
}

// total returns the line that each peer prints at the end of a complete job.
func total() string { return fmt.Sprintf("total %d\n", steps*samples*(steps*samples-1)/2) }
