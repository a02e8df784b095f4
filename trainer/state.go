package trainer

import (
	"fmt"
	"io"

	"github.com/elrun/elrun/trainer/exact"
)

// A runner is an elastic.Replayer, and a Judge and Trier (admit.go, trial.go): what members hold alike is the parameters, the
// optimizer's memory, and the outcome of the last committed step.

// Step returns the last committed step, or -1 if the state is of no use and a copy of
// another member's has to replace it.
func (r *runner) Step() int64 {
	if r.void {
		return -1
	}
	return r.committed
}

// Save writes the state.
func (r *runner) Save(w io.Writer) error { return r.save(w, r.last) }

// save writes the state with o as the outcome of its last step.
func (r *runner) save(w io.Writer, o outcome) error {
	h := r.header(o)
	h.Digest = r.digest()
	if err := encode(w, stateMagic, h, r.everything()); err != nil {
		return fmt.Errorf("trainer: save the state after step %d: %w", r.committed, err)
	}
	return nil
}

// superseded reports the last step before others' copies take this peer to a later one, if it
// is still the peer that has contributed to it.
func (r *runner) superseded(by int64) {
	if _, took := r.last.share(r.open.owner); took && !r.void && r.group.Self().ID == r.open.owner {
		r.reporter.superseded(r.last, r.open.owner, by)
	}
}

// everything returns the parameters and the optimizer's memory.
func (r *runner) everything() [][]float32 {
	var params, memory [][]float32
	for i := range r.params {
		param, slots := r.pipeline.committed(i)
		params, memory = append(params, param), append(memory, slots...)
	}
	return append(params, memory...)
}

// Load replaces the state. The contribution is thrown away: others have gone on
// without this peer, or without what it has computed from a state that was wrong.
func (r *runner) Load(from io.Reader) error {
	h, err := decodeHeader(from, stateMagic)
	if err != nil {
		return fmt.Errorf("trainer: load a state: %w", err)
	}
	scale, err := r.scaleOf(h)
	if err != nil {
		return fmt.Errorf("trainer: load a state: %w", err)
	}
	r.superseded(h.Outcome.Step)
	r.giveUp("taking the state of others")
	r.void = true // until all of it is there
	if err := decodeVectors(from, r.everything()); err != nil {
		return fmt.Errorf("trainer: load a state: %w", err)
	}
	r.digested = false
	if got := r.digest(); got != h.Digest {
		return fmt.Errorf("trainer: load the state after step %d: the parameters have the digest %016x, want %016x", h.Outcome.Step, got, h.Digest)
	}
	r.scale, r.void = scale, false
	r.advance(h.Outcome)
	r.reopen()
	return nil
}

// Update writes the mean gradient of the last committed step. It stays as it is while
// the next step is being reduced.
func (r *runner) Update(w io.Writer) error {
	if err := encode(w, updateMagic, r.header(r.last), r.bufs.applied.views); err != nil {
		return fmt.Errorf("trainer: save the update of step %d: %w", r.committed, err)
	}
	return nil
}

// Apply commits the step that another member's Update describes, as step does when
// it has heard of the commit itself.
func (r *runner) Apply(from io.Reader) error {
	h, err := decodeHeader(from, updateMagic)
	if err != nil {
		return fmt.Errorf("trainer: apply an update: %w", err)
	}
	scale, err := r.scaleOf(h)
	if err != nil {
		return fmt.Errorf("trainer: apply an update: %w", err)
	}
	if h.Outcome.Step != r.committed+1 {
		return fmt.Errorf("trainer: apply an update: it is of step %d, the state after step %d", h.Outcome.Step, r.committed)
	}
	if err := decodeVectors(from, r.bufs.staging.views); err != nil {
		return fmt.Errorf("trainer: apply the update of step %d: %w", h.Outcome.Step, err)
	}
	r.superseded(h.Outcome.Step)
	if err := r.commit(h.Outcome, scale); err != nil {
		return fmt.Errorf("trainer: apply the update of step %d: %w", h.Outcome.Step, err)
	}
	return nil
}

// commit applies the mean gradient that is staged; next is the scale of the step after.
// Every member does the same on the
// same bits, so an error is every member's error; it comes before anything is changed.
func (r *runner) commit(o outcome, next exact.Scale) error {
	for i, v := range r.bufs.staging.views {
		if !allFinite(v[:r.pipeline.left(i)]) { // the others were looked at before
			return fmt.Errorf("gradient of %s summed over all peers: %w", r.layout.params[i].Name, ErrNotFinite)
		}
	}
	rate, err := r.rate(o.Step)
	if err != nil {
		return err
	}
	for i, v := range r.bufs.staging.views {
		param, slots := r.pipeline.rest(i)
		r.cfg.Optimizer.Update(o.Step, rate, param, v[:len(param)], slots)
	}
	r.pipeline.settle()
	r.bufs.swap()
	_, counted := o.share(r.open.owner)
	r.compressed.settle(counted && r.open.step == o.Step)
	r.scale, r.digested = next, false
	r.advance(o)
	r.reopen()
	return nil
}

// rate is the learning rate of a step.
func (r *runner) rate(step int64) (float64, error) {
	rate := r.cfg.Schedule(step)
	if !finite(rate) {
		return 0, fmt.Errorf("learning rate %v: %w", rate, ErrNotFinite)
	}
	return rate, nil
}

// advance takes note of the outcome of the step that the state is now of.
func (r *runner) advance(o outcome) {
	r.reporter.advance(r.last, o)
	if r.open.step == o.Step {
		r.reporter.own = work{step: o.Step, compute: r.open.compute, recomputed: r.open.recomputed,
			predicted: r.balance.predicted}
		r.reporter.own.sent, r.reporter.own.raw = r.compressed.traffic()
	}
	r.last, r.committed = o, o.Step
}

// reopen begins the contribution to the step after the committed one.
func (r *runner) reopen() { r.open.reset(r.committed+1, 0, r.scale, r.openMicrobatches()) }

// openMicrobatches is how many the step after the committed one has; none after the
// last.
func (r *runner) openMicrobatches() int {
	if r.committed >= r.plan.steps {
		return 0
	}
	return r.plan.step(r.committed + 1).microbatches
}
