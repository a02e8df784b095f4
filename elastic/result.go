package elastic

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/elrun/elrun/event"
)

// Result is what a program has found out about the model that it has trained. What is nil
// is not known.
type Result struct {
	Accuracy *float64 // the part of the test set that is right, from 0 to 1
	Loss     *float64 // mean over the test set
}

// Report gives the result that Close tells the launcher, once a loop of Steps has come to its
// end; the last call before Close counts. elrun shows it in the job's last line. One peer
// may report, or all; of several the one with the lowest local index counts. Numbers that
// are not finite are an error, and not reported.
func (g *Group) Report(r Result) error {
	if !g.made() {
		return fmt.Errorf("elastic: report: %w", errNoGroup)
	}
	for name, x := range map[string]*float64{"accuracy": r.Accuracy, "loss": r.Loss} {
		if x != nil && (math.IsNaN(*x) || math.IsInf(*x, 0)) {
			return fmt.Errorf("elastic: report: the %s is %v, want a finite number", name, *x)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.result = r
	return nil
}

// outcome is what the end of the loop is told by: the steps, the members that committed the last
// one, and a hash of the state.
func (l *loop) outcome() (*event.Done, error) {
	h := sha256.New()
	if err := hashState(h, l.state); err != nil {
		return nil, fmt.Errorf("elastic: save the state after step %d: %w", l.state.Step(), err)
	}
	return &event.Done{Steps: l.state.Step(), Peers: max(1, l.group.loops.peers), SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// tellDone writes the end of the job to the log, if it has come.
func (g *Group) tellDone() {
	g.mu.Lock()
	done, result, epoch := g.finished, g.result, g.loops.epoch
	g.mu.Unlock()
	if done == nil {
		return
	}
	done.Accuracy, done.Loss = result.Accuracy, result.Loss
	g.Emit(epoch, done.Steps, *done)
}
