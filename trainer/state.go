package trainer

import (
	"fmt"
	"io"

	"github.com/elrun/elrun/trainer/exact"
)

// state is what all members hold alike after the last committed step: the parameters, the
// optimizer's memory, and the outcome of that step. It is an elastic.Replayer, and knows nothing
// of a group. It is not safe for concurrent use.
type state struct {
	plan     plan
	rules    rules // of commits
	params   []Param
	pipeline *pipeline   // the vectors, and what the open step has changed of them already
	grads    *gradients  // the mean gradients of the last step and of the one that is committed next
	scale    exact.Scale // of the step after the committed one; exact mode only
	last     outcome     // of the committed step; zero before the first
	void     bool        // the state is of no use
	digested uint64      // digest of the parameters; 0 if it has not been taken
	observer observer
}

// observer is told how a state goes on, as reports and the contribution to the open step depend
// on that.
type observer interface {
	// superseded comes before another member's copy takes the state to the step by: one of the
	// whole state, or else the update of the step after the committed one.
	superseded(by int64, whole bool)
	// advanced comes when the state is after the step of o; was is the outcome before.
	advanced(was, o outcome)
}

// newState returns the state before the first step. grads has the mode's gradients, and scale is
// that of the first step.
func newState(p plan, cfg Config, params []Param, grads *gradients, scale exact.Scale) *state {
	return &state{plan: p, rules: rules{cfg.Optimizer, cfg.Schedule, cfg.Delay}, params: params,
		pipeline: newPipeline(params, cfg.Optimizer), grads: grads, scale: scale}
}

// committed returns the number of the last committed step; 0 before the first.
func (s *state) committed() int64 { return s.last.Step }

// Step returns the last committed step, or -1 if the state is of no use and a copy of
// another member's has to replace it.
func (s *state) Step() int64 {
	if s.void {
		return -1
	}
	return s.committed()
}

// invalidate says that the state is of no use until a good one is loaded.
func (s *state) invalidate() { s.void = true }

// Save writes the state.
func (s *state) Save(w io.Writer) error { return s.save(w, s.last) }

// save writes the state with o as the outcome of its last step.
func (s *state) save(w io.Writer, o outcome) error {
	h := s.header(o)
	h.Digest = s.digest()
	if err := encode(w, stateMagic, h, s.vectors()); err != nil {
		return fmt.Errorf("trainer: save the state after step %d: %w", s.committed(), err)
	}
	return nil
}

// Load replaces the state. The contribution is thrown away: others have gone on
// without this peer, or without what it has computed from a state that was wrong.
func (s *state) Load(from io.Reader) error {
	h, err := decodeHeader(from, stateMagic)
	if err != nil {
		return fmt.Errorf("trainer: load a state: %w", err)
	}
	scale, err := s.check(h)
	if err != nil {
		return fmt.Errorf("trainer: load a state: %w", err)
	}
	s.observer.superseded(h.Outcome.Step, true)
	s.invalidate() // until all of it is there
	if err := decodeVectors(from, s.vectors()); err != nil {
		return fmt.Errorf("trainer: load a state: %w", err)
	}
	s.digested = 0
	if got := s.digest(); got != h.Digest {
		return fmt.Errorf("trainer: load the state after step %d: the parameters have the digest %016x, want %016x", h.Outcome.Step, got, h.Digest)
	}
	s.scale, s.void = scale, false
	was := s.last
	s.last = h.Outcome
	s.observer.advanced(was, s.last)
	return nil
}

// Update writes the mean gradient of the last committed step. It stays as it is while
// the next step is being reduced.
func (s *state) Update(w io.Writer) error {
	if err := encode(w, updateMagic, s.header(s.last), s.grads.applied.views); err != nil {
		return fmt.Errorf("trainer: save the update of step %d: %w", s.committed(), err)
	}
	return nil
}

// Apply commits the step that another member's Update describes, as a member does that has
// heard of the commit itself.
func (s *state) Apply(from io.Reader) error {
	h, err := decodeHeader(from, updateMagic)
	if err != nil {
		return fmt.Errorf("trainer: apply an update: %w", err)
	}
	scale, err := s.check(h)
	if err != nil {
		return fmt.Errorf("trainer: apply an update: %w", err)
	}
	if h.Outcome.Step != s.committed()+1 {
		return fmt.Errorf("trainer: apply an update: it is of step %d, the state after step %d", h.Outcome.Step, s.committed())
	}
	if err := decodeVectors(from, s.grads.staging.views); err != nil {
		return fmt.Errorf("trainer: apply the update of step %d: %w", h.Outcome.Step, err)
	}
	s.observer.superseded(h.Outcome.Step, false)
	if err := s.commit(h.Outcome, scale); err != nil {
		return fmt.Errorf("trainer: apply the update of step %d: %w", h.Outcome.Step, err)
	}
	return nil
}

// commit applies the mean gradient that is staged; next is the scale of the step after.
// Every member does the same on the
// same bits, so an error is every member's error; it comes before anything is changed.
func (s *state) commit(o outcome, next exact.Scale) error {
	for i, v := range s.grads.staging.views {
		if !allFinite(v[:s.unmeant(i)]) { // the others were looked at before
			return fmt.Errorf("gradient of %s summed over all peers: %w", s.params[i].Name, ErrNotFinite)
		}
	}
	apply, mean, err := s.rules.due(o.Step, s.grads)
	if err != nil {
		return err
	}
	for i, v := range mean {
		param, slots := s.pipeline.remaining(i)
		apply(param, v[:len(param)], slots)
	}
	s.pipeline.commit()
	s.grads.swap()
	s.scale, s.digested = next, 0
	was := s.last
	s.last = o
	s.observer.advanced(was, o)
	return nil
}

// complete applies what a delay has held back, after the last step. The function that it returns
// takes that back.
func (s *state) complete() (takeBack func(), err error) {
	if !s.rules.delay {
		return func() {}, nil
	}
	apply, err := s.rules.of(s.committed())
	if err != nil {
		return nil, err
	}
	s.pipeline.reserve()
	s.pipeline.advance(s.grads.applied.views, apply)
	return s.pipeline.rollback, nil
}

// unmeant returns how many elements of the sum of parameter i, from the first on, have not
// been made a mean.
func (s *state) unmeant(i int) int {
	if s.rules.delay {
		return len(s.params[i].Data)
	}
	return s.pipeline.left(i)
}

// vectors returns what is saved: parameters, the optimizer's memory, and what a delay holds back.
func (s *state) vectors() [][]float32 {
	all := s.pipeline.vectors()
	if s.rules.delay {
		all = append(all, s.grads.applied.views...)
	}
	return all
}

// header describes the state after the last committed step, reached with o.
func (s *state) header(o outcome) header {
	h := header{Outcome: o, Exponents: s.scale.Exponents(), Slots: s.rules.optimizer.Slots()}
	for _, p := range s.params {
		h.Sizes = append(h.Sizes, len(p.Data))
	}
	return h
}

// check wants all of a header to fit this job, and returns the scale that it has.
func (s *state) check(h header) (exact.Scale, error) {
	if err := h.fits(s.header(outcome{})); err != nil {
		return exact.Scale{}, err
	}
	if err := h.Outcome.check(s.plan); err != nil {
		return exact.Scale{}, err
	}
	return s.plan.scale(h.Exponents)
}

// digest returns the digest of the parameters after the last committed step.
func (s *state) digest() uint64 {
	if s.digested == 0 {
		s.digested = digestOf(s.pipeline.vectors()[:len(s.params)])
	}
	return s.digested
}

// dueDigest returns the digest after the last committed step if it is one after which it is
// taken, or 0.
func (s *state) dueDigest() uint64 {
	if !digestDue(s.committed(), s.params) {
		return 0
	}
	return s.digest()
}
