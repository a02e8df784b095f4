// Ownloop is an elastic training loop without elrun's trainer: it continues while peers join,
// leave and die. It fits a linear function to generated samples:
//
//	ownloop
//	elrun -n 3 --name own ownloop     and from another terminal, besides kill -9 PID:
//	elrun scale own 4
//	elrun join --name own -n 2 ownloop
//
// With --checkpoint DIR it saves its state every 100 steps, and --resume DIR goes on from there.
//
// Each sample counts exactly once. A step is committed when AllReduce returns nil. At every rank it returns nil only after all
// ranks have contributed. If a step fails because a peer died, it has no effect and is tried again without that peer, from the
// last committed state. The trainer also keeps the work that survivors have done in a failed step; this simple loop does not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/trainer/checkpoint"
)

func main() {
	steps := flag.Int64("steps", 500, "steps of `N` samples in all")
	pace := flag.Duration("pace", 10*time.Millisecond, "`time` that a step takes at least")
	var saving checkpoint.Config
	flag.StringVar(&saving.Dir, "checkpoint", "", "save the state to the folder `DIR`")
	flag.StringVar(&saving.Resume, "resume", "", "go on from the newest checkpoint in `DIR`")
	flag.Parse()
	saving.EverySteps, saving.Log = 100, log.New(os.Stderr, "ownloop: ", 0).Printf
	// launch handles SIGTERM: it lets this peer finish the step and leave.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, saving, *steps, *pace)
	stop()
	switch {
	case errors.Is(err, elastic.ErrLeft), errors.Is(err, elastic.ErrFinished):
		fmt.Fprintln(os.Stderr, "ownloop:", err) // no failure: elrun does not count the status
	case errors.Is(err, elastic.ErrQuorum):
		fmt.Fprintln(os.Stderr, "ownloop:", err)
		os.Exit(launch.StatusQuorum)
	case err != nil:
		fmt.Fprintln(os.Stderr, "ownloop:", err)
		os.Exit(1)
	}
}

// run joins the job, trains, reports the result and leaves.
func run(ctx context.Context, saving checkpoint.Config, steps int64, pace time.Duration) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	var m Model
	if err := m.Train(ctx, g, saving, steps, pace); err != nil {
		return err
	}
	fmt.Printf("after %d steps of %d samples: weights %.4f, loss %.6f\n", steps, Batch, m.Weights, m.Loss())
	return g.Report(elastic.Result{Loss: new(m.Loss())})
}

// Train trains m together with the other peers until the given number of steps is committed. A step
// takes at least pace, so that a user can follow the training.
func (m *Model) Train(ctx context.Context, g *elastic.Group, saving checkpoint.Config, steps int64, pace time.Duration) error {
	state, err := checkpoint.NewState(g, saving, &m.Steps, checkpoint.Tensor{Name: "weights", Values: m.Weights[:]})
	if err != nil {
		return err
	}
	defer state.Close()
	for t := range g.Steps(ctx, state, steps) {
		lo, hi := t.Part(Batch)
		sum := m.Gradient(lo, hi)
		wait(ctx, pace)
		if err := collective.AllReduce(ctx, t.Comm, sum[:], sum[:], collective.Sum[float64]); err != nil {
			continue // the step is tried again
		}
		m.Commit(sum)
		t.Report("loss", m.Loss()) // for the progress line, elrun status and the event log
	}
	return g.Err()
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
