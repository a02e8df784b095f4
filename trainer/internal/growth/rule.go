package growth

import (
	"fmt"
	"math"
	"slices"
)

// Values of Rule.Rate; package trainer documents them.
const (
	Linear   = "linear"
	AdaScale = "adascale"
	Root     = "sqrt"
)

// Rule decides whether a batch grows, and how the learning rate follows.
type Rule struct {
	First, Max int // samples of the first and of the largest batch; Max is 0 if the batch stays
	// Rate is the rule of the learning rate.
	Rate string
	// Efficiency is the least worth of a sample of a larger batch beside one of the first batch.
	Efficiency float64
	Every      int64 // least number of steps between two changes
}

// State is the part of the state of a job that says how the batch has grown, and of what the next
// decision depends. It is a value: its slice is never changed.
type State struct {
	Changes []Change `json:",omitempty"` // in ascending order of steps
	// Noise has the averages of the noise scale after the last committed step.
	Noise Averages
}

// Change is a change of the batch.
type Change struct {
	Step  int64   // first step of the batch
	Batch int     // samples of a step
	Noise float64 // noise scale in samples by which it was decided
}

// Lead is the number of steps from the commit that decides a change to the first step of the new
// batch. The step after a commit may have begun before it, with shares and data of its own.
const Lead = 2

// Gain returns the factor of the learning rate for the batch of a change.
func (r Rule) Gain(c Change) float64 {
	linear := float64(c.Batch) / float64(r.First)
	switch r.Rate {
	case AdaScale:
		return (c.Noise/float64(r.First) + 1) / (c.Noise/float64(c.Batch) + 1)
	case Root:
		return math.Sqrt(linear)
	}
	return linear
}

// pays reports whether samples of a larger batch keep their worth.
func (r Rule) pays(larger int, noise float64) bool {
	// The conversion prevents a fused multiply-add, which rounds differently on some processors.
	return noise > 0 && noise+float64(r.First) >= float64(r.Efficiency*(noise+float64(larger)))
}

// larger returns the batch after a batch.
func (r Rule) larger(batch int) int {
	if batch > r.Max/2 {
		return r.Max
	}
	return 2 * batch
}

// first returns the first batch as a change.
func (r Rule) first() Change { return Change{Step: 1, Batch: r.First} }

// allows returns an error unless the batch may grow from one change to the next, for a noise scale.
func (r Rule) allows(last, next Change) error {
	if last.Batch >= r.Max || next.Batch != r.larger(last.Batch) || next.Step <= last.Step ||
		next.Step-last.Step < r.Every || !r.pays(next.Batch, next.Noise) {
		return fmt.Errorf("the batch cannot grow from %d to %d at step %d, for a noise scale of %v", last.Batch, next.Batch, next.Step, next.Noise)
	}
	return nil
}

// After returns the state after the commit of a step, with the noise measured up to that step.
func (r Rule) After(s State, step int64, noise Averages) State {
	s.Noise = noise
	last := r.first()
	if n := len(s.Changes); n > 0 {
		last = s.Changes[n-1]
	}
	next := Change{step + Lead, r.larger(last.Batch), noise.Scale()}
	if r.allows(last, next) == nil {
		s.Changes = append(slices.Clone(s.Changes), next)
	}
	return s
}

// Check returns an error if s cannot be the state after a committed step. It comes from another member
// or a checkpoint.
func (r Rule) Check(s State, committed int64) error {
	if err := s.Noise.check(); err != nil {
		return err
	}
	last := r.first()
	for _, c := range s.Changes {
		if err := r.allows(last, c); err != nil {
			return err
		}
		last = c
		if c.Step-Lead > committed {
			return fmt.Errorf("the batch cannot grow at step %d, which was not decided after step %d", c.Step, committed)
		}
	}
	return nil
}
