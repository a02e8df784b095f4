package trainer

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/elrun/elrun/internal/netpoll"
)

// errGone ends a session whose model or program has panicked or called runtime.Goexit.
var errGone = errors.New("its program ended Run by a panic or runtime.Goexit: see the output of that peer")

// guard wraps the model of a run. It revokes the session if Gradient ends by a panic or
// runtime.Goexit, so that the other peers do not wait for this one. And it reports the end of the
// run to the model (Batch.Err).
type guard struct {
	revoke   func(error)     // revokes the session; nil before the first session
	ended    func() error    // returns why the run ends, or nil; the latter before the run
	progress *netpoll.Engine // drives calls under way while the model computes
}

// start begins a run; ended returns why the run ends, or nil.
func (g *guard) start(ended func() error) (err error) {
	if g.progress, err = netpoll.New(); err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	g.ended = ended
	return nil
}

// stop ends the run.
func (g *guard) stop() { _ = g.progress.Close() } // an error is harmless: nobody uses the closed pipe

// poll lets calls under way make progress.
func (g *guard) poll() { g.progress.Poll() }

// of returns a wrapper of the model that revokes the session if Gradient does not return, and whose
// Batches report the end of the run.
func (g *guard) of(m Model) Model {
	gradient := m.Gradient
	m.Gradient = func(b *Batch) (float64, error) {
		returned := false
		defer func() {
			// runtime.Goexit or a panic in the model: the other ranks would wait for this rank's
			// calls.
			if !returned && g.revoke != nil {
				g.revoke(errGone)
			}
		}()
		loss, err := gradient(b.Wrap(func(gate *Gate) {
			useless := gate.Err
			gate.Yield = g.progress.PollIfDue
			gate.Err = func() error { return cmp.Or(useless(), g.ended()) }
		}))
		returned = true
		return loss, err
	}
	return m
}
