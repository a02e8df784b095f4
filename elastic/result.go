package elastic

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"sync"

	"github.com/elrun/elrun/event"
)

// Result is the quality of the trained model, as the program has measured it. A nil field is
// unknown.
type Result struct {
	Accuracy *float64 // the fraction of the test set that is classified correctly, from 0 to 1
	Loss     *float64 // the mean loss over the test set
}

// Report sets the result that Close passes to the launcher, if a loop of Steps has come to its end.
// The last call before Close counts. elrun shows the result in the job's last line. One peer may
// report, or all; if several do, the peer with the lowest local index counts. A number that is not
// finite is an error, and the result is not reported then.
func (g *Group) Report(r Result) error {
	if !g.made() {
		return fmt.Errorf("elastic: report: %w", errNoGroup)
	}
	for name, x := range map[string]*float64{"accuracy": r.Accuracy, "loss": r.Loss} {
		if x != nil && (math.IsNaN(*x) || math.IsInf(*x, 0)) {
			return fmt.Errorf("elastic: report: the %s is %v, want a finite number", name, *x)
		}
	}
	g.outcome.report(r)
	return nil
}

// outcome holds the event for the end of the last loop of Steps, if that loop has come to its end,
// and the result that the program has reported. It is safe for concurrent use.
type outcome struct {
	// mu guards the fields below.
	mu   sync.Mutex
	done *event.Done // without the result; nil if steps are left
	// epoch is the epoch of the last session.
	epoch  uint64
	result Result
}

// report sets the result.
func (o *outcome) report(r Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.result = r
}

// end sets the event for the end of a loop, or nil when a loop begins.
func (o *outcome) end(done *event.Done, epoch uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done, o.epoch = done, epoch
}

// get returns the event for the end of the job, with its epoch; nil if steps are left.
func (o *outcome) get() (*event.Done, uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done == nil {
		return nil, 0
	}
	done := *o.done
	// The result of the last Report before Close counts.
	done.Accuracy, done.Loss = o.result.Accuracy, o.result.Loss
	return &done, o.epoch
}

// outcome returns the event for the end of the loop: the number of steps, the number of members
// that committed the last one, and a hash of the state.
func (l *loop) outcome() (*event.Done, error) {
	h := sha256.New()
	if err := hashState(h, l.state); err != nil {
		return nil, fmt.Errorf("elastic: save the state after step %d: %w", l.state.Step(), err)
	}
	return &event.Done{Steps: l.state.Step(), Peers: max(1, l.group.loops.peers), SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}
