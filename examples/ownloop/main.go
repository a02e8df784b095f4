// Ownloop is a training loop of its own, without elrun's trainer, that goes on while
// peers come, go and die. It fits a line to generated samples:
//
//	ownloop
//	elrun -n 3 --name own ownloop     and from another terminal, besides kill -9 PID:
//	elrun scale own 4
//	elrun join --name own -n 2 ownloop
//
// Every sample counts exactly once. A step is committed when AllReduce returns nil,
// which it does at no rank before all have contributed. A step that fails because a peer
// died has counted nowhere: the next session computes all of it again, from the state
// that was committed last. The trainer saves even that, as it keeps what the survivors
// have computed; a loop of one's own can do without.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

func main() {
	steps := flag.Int64("steps", 500, "steps of `N` samples in all")
	pace := flag.Duration("pace", 10*time.Millisecond, "`time` that a step takes at least")
	flag.Parse()
	// SIGTERM is launch's: it lets this peer finish the step and leave.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *steps, *pace)
	stop()
	switch {
	case errors.Is(err, elastic.ErrLeft):
		fmt.Println("left")
	case errors.Is(err, elastic.ErrFinished):
		fmt.Println("came when the job had finished")
	case errors.Is(err, elastic.ErrQuorum):
		fmt.Fprintln(os.Stderr, "ownloop:", err)
		os.Exit(launch.StatusQuorum)
	case err != nil:
		fmt.Fprintln(os.Stderr, "ownloop:", err)
		os.Exit(1)
	}
}

// run joins the job, trains and leaves.
func run(ctx context.Context, steps int64, pace time.Duration) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	l := Loop{Group: g, Steps: steps, Pace: pace}
	if err := l.Run(ctx); err != nil {
		return err
	}
	fmt.Printf("after %d steps of %d samples: weights %.4f, loss %.6f\n", steps, batch, l.Model.Weights, l.Model.Loss())
	return nil
}

// Loop is a training run at one peer.
type Loop struct {
	Group *elastic.Group
	Model Model
	Steps int64         // of the whole job
	Pace  time.Duration // that a step takes at least
}

// Run goes from session to session until all steps are committed. When Next returns
// all members of the session have committed the same steps, so none ends while another
// lacks one.
func (l *Loop) Run(ctx context.Context) error {
	// A peer that wants to join with other settings is refused.
	l.Group.Hold(&l.Model, []elastic.Setting{{Name: "steps", Value: fmt.Sprint(l.Steps)}})
	for epoch := uint64(0); ; {
		s, err := l.Group.Next(ctx, epoch)
		if err != nil {
			return err // elastic.ErrLeft, elastic.ErrQuorum, ...
		}
		epoch = s.View.Epoch
		if again, err := l.session(ctx, s); err != nil || !again {
			return err
		}
	}
}

// session trains with a fixed set of members. It reports whether there has to be
// another session, because a member was lost or the membership changes.
func (l *Loop) session(ctx context.Context, s *elastic.Session) (again bool, err error) {
	m := &l.Model
	for m.Steps < l.Steps {
		part := m.Gradient(s.Rank, s.Comm.Size())
		wait(ctx, l.Pace)
		var sum Sums // m keeps those of the last step until this one is committed
		if err := collective.AllReduce(ctx, s.Comm, sum[:], part[:], collective.Sum[float64]); err != nil {
			return lost(err)
		}
		m.Commit(sum)
		if err := l.Group.Committed(m.Steps); err != nil {
			return false, err
		}
		if s.Rank == 0 && m.Steps%100 == 0 {
			evaluate(s, m)
		}
		// Also after the last step: when it returns nil all have committed that.
		if leave, err := s.Boundary(ctx); err != nil || leave {
			return lost(err)
		}
	}
	return false, nil
}

// lost reports whether another session follows one that ended with err. It would not
// help where ranks have made different calls, which is a mistake of the program.
func lost(err error) (again bool, _ error) {
	if err == nil || errors.Is(err, collective.ErrRevoked) && !errors.Is(err, collective.ErrMismatch) {
		return true, nil
	}
	return false, err
}

// evaluate tells how good the model is. The other peers wait meanwhile; if they wait
// for long they are told what for.
func evaluate(s *elastic.Session, m *Model) {
	done := s.Busy("evaluating")
	defer done()
	fmt.Printf("step %d, %d peers: loss %.6f\n", m.Steps, s.Comm.Size(), m.Loss())
}

// wait makes a step long enough to be watched.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
