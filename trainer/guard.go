package trainer

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/elrun/elrun/internal/netpoll"
)

// errGone is why a session ends in which a model or a program has panicked, or has ended its
// goroutine.
var errGone = errors.New("its program has left Run by a panic or runtime.Goexit")

// guard stands between a run and its model: it tells the other peers if the model never returns,
// and the model if the run ends.
type guard struct {
	revoke   func(error)     // of the session; nil before the first
	ended    func() error    // why the run ends; nil before the run
	progress *netpoll.Engine // of calls while the model computes
}

// newGuard returns a guard for before the run.
func newGuard() *guard { return &guard{ended: func() error { return nil }} }

// start begins a run, of which ended says why it ends.
func (g *guard) start(ended func() error) (err error) {
	if g.progress, err = netpoll.New(); err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	g.ended = ended
	return nil
}

// stop ends the run.
func (g *guard) stop() { _ = g.progress.Close() } // of a pipe that nobody uses

// poll lets calls under way go on.
func (g *guard) poll() { g.progress.Poll() }

// of returns a model that tells the other peers if it never returns, and whose Batches
// know of the run.
func (g *guard) of(m Model) Model {
	gradient := m.Gradient
	m.Gradient = func(b *Batch) (float64, error) {
		returned := false
		defer func() {
			if !returned && g.revoke != nil {
				g.revoke(errGone)
			}
		}()
		loss, err := gradient(b.Wrap(func(gate *Gate) {
			useless := gate.Err
			gate.Yield = g.progress.Poke
			gate.Err = func() error { return cmp.Or(useless(), g.ended()) }
		}))
		returned = true
		return loss, err
	}
	return m
}
