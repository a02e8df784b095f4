package trainer

import (
	"fmt"

	"github.com/elrun/elrun/elastic"
)

// outcome is what all members know alike about a committed step, and hand on with the
// state. Who contributed what is part of it, because a member may be gone before it
// has reported its own part: then the others do.
type outcome struct {
	Step    int64
	Attempt int64   // from 0
	Epoch   uint64  // in which it was committed
	Peers   int     // members of that epoch
	Samples int64   // of the step
	Loss    lossSum // sum over Samples
	Shares  []share // of all members in rank order; empty in a checkpoint of a stable step
}

// share is the part of a step that one member contributed.
type share struct {
	Peer         elastic.ID
	Microbatches [][2]int // [first, end) in ascending order
}

// share returns the part of a peer, and whether it took part at all.
func (o outcome) share(id elastic.ID) (share, bool) {
	for _, s := range o.Shares {
		if s.Peer == id {
			return s, true
		}
	}
	return share{}, false
}

// meanLoss is the loss per sample.
func (o outcome) meanLoss() float64 { return o.Loss.float() / float64(o.Samples) }

// check returns an error if o cannot be an outcome of the plan.
func (o outcome) check(p plan) error {
	if o.Step < 0 || o.Step > maxStep || o.Attempt < 0 || o.Peers < 0 || o.Samples < 0 {
		return fmt.Errorf("step %d, attempt %d, %d peers, %d samples", o.Step, o.Attempt, o.Peers, o.Samples)
	}
	if o.Step == 0 {
		return nil
	}
	step := p.step(o.Step)
	if want := int64(step.end - step.first); o.Samples != want {
		return fmt.Errorf("step %d with %d samples, it has %d", o.Step, o.Samples, want)
	}
	for _, s := range o.Shares {
		next := 0
		for _, r := range s.Microbatches {
			if r[0] < next || r[1] <= r[0] || r[1] > step.microbatches {
				return fmt.Errorf("step %d: %s contributed the microbatches %v of %d", o.Step, s.Peer.Short(), s.Microbatches, step.microbatches)
			}
			next = r[1]
		}
	}
	return nil
}

// maxStep bounds the numbers of steps, so that reckoning with them cannot overflow.
const maxStep = 1e12
