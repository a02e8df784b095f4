package trainer

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic"
)

// outcome describes a committed step. It is part of the state, and equal at all members. It includes
// the contribution of every member: if a member dies before it has reported its own part, the
// others report that part.
type outcome struct {
	Step    int64
	Attempt int64   // from 0
	Epoch   uint64  // in which the step was committed
	Peers   int     // members of that epoch
	Samples int64   // in the step
	Loss    lossSum // sum over Samples
	// Shares has the contributions of all members, in rank order; it is empty in a checkpoint of a
	// stable step.
	Shares []share
}

// share is one member's part of a step.
type share struct {
	Peer         elastic.ID // the member
	Microbatches [][2]int   // [first, end) ranges in ascending order
}

// previous returns the peer before a peer in rank order; before the first peer stands the last one.
func (o outcome) previous(id elastic.ID) elastic.ID {
	at := slices.IndexFunc(o.Shares, func(s share) bool { return s.Peer == id })
	return o.Shares[(at+len(o.Shares)-1)%len(o.Shares)].Peer
}

// share returns the part of a peer, and whether the peer was a member in this step.
func (o outcome) share(id elastic.ID) (share, bool) {
	for _, s := range o.Shares {
		if s.Peer == id {
			return s, true
		}
	}
	return share{}, false
}

// meanLoss returns the loss per sample.
func (o outcome) meanLoss() float64 { return o.Loss.float() / float64(o.Samples) }

// check returns an error if o cannot be an outcome of the plan. An outcome comes from another
// member or a checkpoint, and its step and ranges are used in computations.
func (o outcome) check(p plan) error {
	if o.Step < 0 || o.Step > maxStep || o.Attempt < 0 || o.Peers < 0 || o.Samples < 0 {
		return fmt.Errorf("its outcome is out of range: step %d, attempt %d, %d peers, %d samples", o.Step, o.Attempt, o.Peers, o.Samples)
	}
	if o.Step == 0 {
		return nil
	}
	step := p.step(o.Step)
	if want := int64(step.end - step.first); o.Samples != want {
		return fmt.Errorf("its outcome of step %d has %d samples, want %d", o.Step, o.Samples, want)
	}
	for _, s := range o.Shares {
		next := 0
		for _, r := range s.Microbatches {
			// Ascending ranges cannot overlap, so no microbatch counts twice for a peer.
			if r[0] < next || r[1] <= r[0] || r[1] > step.microbatches {
				return fmt.Errorf("its outcome in step %d: %s contributed the microbatches %v, want ascending ranges up to %d", o.Step, s.Peer.Short(), s.Microbatches, step.microbatches)
			}
			next = r[1]
		}
	}
	return nil
}

// maxStep bounds step numbers, so that arithmetic with them cannot overflow.
const maxStep = 1e12
