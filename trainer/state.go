package trainer

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/growth"
	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/internal/level"
	"github.com/elrun/elrun/trainer/optim"
)

// state is the replicated state after the last committed step, equal at all members: the
// parameters, the optimizer state, and the outcome of that step. It is an elastic.Replayer and
// independent of a group. It is not safe for concurrent use.
//
// Parameters may already be updated with a step that is not committed; Save, Update and digest
// always describe the last committed step (see undoLog).
type state struct {
	plan  plan
	rules rules // how a commit changes the parameters
	// params are the parameters. Their vectors belong to the model, and the undo log updates them.
	params []Param
	undo   *undoLog         // parameters and optimizer state, with the uncommitted updates of the open step
	grads  *gradientBuffers // mean gradients of the last committed step and of the step under way
	// scale is the scale of the step after the committed step, in exact mode only.
	scale exact.Scale
	// last is the outcome of the last committed step; zero before the first.
	last     outcome
	void     bool   // the state is invalid and has to be replaced
	digested uint64 // cached digest of the parameters; 0 if not computed
	// observer is notified of the transitions of the state.
	observer observer
	// updater replaces the optimizer; nil without one. inexact means that it may round differently at
	// other members (package level), and unchecked that it gets mean gradients that are not finite.
	updater   optim.Updater
	inexact   bool
	unchecked bool
	given     [][]float32 // Model.Grads, for means
}

// observer is notified of the state's transitions, because reports and the contribution to the
// open step depend on them.
type observer interface {
	// superseded is called before another member's copy moves the state to step number by. The copy
	// is a whole state, or else the update of the step after the committed step.
	superseded(by int64, whole bool)
	// advanced is called after a transition; o is the outcome of the new state, and was is the
	// outcome of the old state.
	advanced(was, o outcome)
}

// outcome describes a committed step. It is part of the state, and equal at all members. It includes
// the contribution of every member: if a member dies before it has reported its own part, the
// others report that part.
type outcome struct {
	Step    int64
	Attempt int64      // from 0
	Epoch   uint64     // in which the step was committed
	Peers   int        // members of that epoch
	Samples int64      // in the step
	Loss    ledger.Sum // sum over Samples
	// Weight is the sum of the weights (Batch.Weight), which replaces Samples in means; nil if no call
	// of the model has given one.
	Weight *ledger.Sum `json:",omitempty"`
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

// weight returns the sum of the weights: the number of samples if none were given.
func (o outcome) weight() float64 {
	if o.Weight != nil {
		return o.Weight.Float()
	}
	return float64(o.Samples)
}

// meanLoss returns the mean loss over the samples by weight; 0 if all were skipped.
func (o outcome) meanLoss() float64 {
	if o.skipped() {
		return 0
	}
	return o.Loss.Float() / o.weight()
}

// skipped reports whether all samples of the step have the weight 0.
func (o outcome) skipped() bool { return o.Weight != nil && *o.Weight == ledger.Sum{} }

// check returns an error if o cannot be an outcome of the plan. An outcome comes from another
// member or a checkpoint, and its step and ranges are used in computations.
func (o outcome) check(p plan) error {
	if o.Step < 0 || o.Step > maxStep || o.Attempt < 0 || o.Peers < 0 || o.Samples < 0 {
		return fmt.Errorf("its outcome is out of range: step %d, attempt %d, %d peers, %d samples", o.Step, o.Attempt, o.Peers, o.Samples)
	}
	if o.Step == 0 {
		return nil
	}
	if o.Weight != nil && o.Weight.Hi < 0 {
		return fmt.Errorf("its outcome of step %d has the weight %v, want 0 or more", o.Step, o.weight())
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

// newState returns the state before the first step. grads are the gradient buffers of the mode,
// and scale is the scale of the first step.
func newState(p plan, cfg Config, params []Param, grads *gradientBuffers, scale exact.Scale) *state {
	return &state{plan: p, rules: rules{cfg.Optimizer, cfg.Schedule, cfg.Gradients.Delay, p}, params: params,
		undo: newUndoLog(params, cfg.Optimizer), grads: grads, scale: scale}
}

// rules define how the commit of a step changes the parameters.
type rules struct {
	optimizer optim.Optimizer // computes new parameters from a mean gradient
	schedule  optim.Schedule  // returns the learning rate of a step without growth
	delay     bool            // apply a mean gradient at the commit of the next step
	plan      plan            // says how far the schedule is, and the gain of the batch
}

// rule updates a part of a parameter for one step; state has the same part of the optimizer's
// vectors.
type rule func(param, mean []float32, state [][]float32)

// of returns the rule for the mean gradient of a step. The rule of step 0 does nothing: with a
// delay, the commit of step 1 has no earlier gradient.
func (r rules) of(step int64) (rule, error) {
	if step == 0 {
		return func(_, _ []float32, _ [][]float32) {}, nil
	}
	rate := r.rate(step)
	if !finite(rate) {
		return nil, fmt.Errorf("learning rate %v: %w", rate, ErrNotFinite)
	}
	return func(param, mean []float32, memory [][]float32) {
		r.optimizer.Update(step, rate, param, mean, memory)
	}, nil
}

// rate returns the learning rate for the mean gradient of a step.
func (r rules) rate(step int64) float64 {
	at, gain := r.plan.scheduled(step)
	return gain * r.schedule(at)
}

// toApply returns the mean gradient that the commit of a step applies, and its rule: the gradient of the
// step itself, or with Gradients.Delay the gradient of the previous step. The learning rate belongs
// to the step of the gradient.
func (r rules) toApply(step int64, grads *gradientBuffers) (apply rule, mean [][]float32, err error) {
	mean = grads.staging.views
	if r.delay {
		step, mean = step-1, grads.applied.views
	}
	apply, err = r.of(step)
	return apply, mean, err
}

// rate returns the learning rate for the mean gradient of a step, for the log; 0 if it is not known, as with
// an Updater.
func (s *state) rate(step int64) float64 {
	rate := s.rules.rate(step)
	if s.updater != nil || !finite(rate) {
		return 0
	}
	return rate
}

// committed returns the number of the last committed step; 0 before the first.
func (s *state) committed() int64 { return s.last.Step }

// Step returns the last committed step, or -1 if the state is invalid and has to be replaced by a
// copy of another member's state.
func (s *state) Step() int64 {
	if s.void {
		return -1
	}
	return s.committed()
}

// invalidate marks the state as invalid until Load replaces it.
func (s *state) invalidate() { s.void = true }

// Save writes the state after the last committed step to w, in the format of codec.go.
func (s *state) Save(w io.Writer) error {
	h := s.header(s.last)
	h.Digest = s.digest()
	own, err := s.saveUpdater(&h)
	if err == nil {
		err = encode(w, stateMagic, h, s.vectors())
	}
	if err == nil && len(own) > 0 {
		_, err = w.Write(own)
	}
	if err != nil {
		return fmt.Errorf("trainer: save the state after step %d: %w", s.committed(), err)
	}
	return nil
}

// Load replaces the state with the state of another member. The contribution is discarded: either
// the others have continued without this peer, or the contribution was computed from a wrong state.
// After an error the state may be invalid.
func (s *state) Load(from io.Reader) error {
	h, err := decodeHeader(from, stateMagic)
	if err == nil {
		err = s.replace(h, func() ([]byte, error) {
			if err := decodeVectors(from, s.vectors()); err != nil {
				return nil, err
			}
			own, err := h.readUpdater(from)
			if err != nil {
				return nil, err
			}
			return own, decodeEnd(from)
		})
	}
	if err != nil {
		return fmt.Errorf("trainer: load a state: %w", err)
	}
	return nil
}

// replace replaces the state with a saved state, which h describes. read fills the vectors, which
// have the lengths of h, and returns the state of the Updater, if there is one. If h does not fit this
// job, nothing changes; after any other error the state may be invalid.
func (s *state) replace(h header, read func() (updater []byte, err error)) error {
	scale, err := s.check(h)
	if err != nil {
		return err
	}
	// The observer still sees the old state; after this the old state is overwritten.
	s.observer.superseded(h.Outcome.Step, true)
	s.invalidate() // until all vectors are read
	own, err := read()
	if err == nil {
		err = s.loadUpdater(h, own)
	}
	if err != nil {
		return err
	}
	// The digest detects a copy that was corrupted during the transfer.
	s.digested = 0
	if got := s.digest(); got != h.Digest {
		return fmt.Errorf("the parameters after step %d have the digest %016x, want %016x", h.Outcome.Step, got, h.Digest)
	}
	s.grow(h.Growth)
	s.scale, s.void = scale, false
	was := s.last
	s.last = h.Outcome
	s.observer.advanced(was, s.last)
	return nil
}

// Update writes the mean gradient of the last committed step to w. The gradient does not change
// while the next step is being reduced.
func (s *state) Update(w io.Writer) error {
	if err := encode(w, updateMagic, s.header(s.last), s.grads.applied.views); err != nil {
		return fmt.Errorf("trainer: save the update of step %d: %w", s.committed(), err)
	}
	return nil
}

// Apply commits the step of another member's Update, exactly as a member that received the commit
// record itself does.
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
		return fmt.Errorf("trainer: apply an update: it is of step %d, but the state is of step %d", h.Outcome.Step, s.committed())
	}
	// No reduction is under way while elastic applies an update, so the staging buffer is free.
	if err := errors.Join(decodeVectors(from, s.grads.staging.views), decodeEnd(from)); err != nil {
		return fmt.Errorf("trainer: apply the update of step %d: %w", h.Outcome.Step, err)
	}
	s.observer.superseded(h.Outcome.Step, false)
	if err := s.commit(h.Outcome, scale, h.Growth); err != nil {
		return fmt.Errorf("trainer: apply the update of step %d: %w", h.Outcome.Step, err)
	}
	return nil
}

// commit applies the mean gradient that is due and makes o the outcome of the last step; next is the
// scale of the step after o, and grown the growth of the batch after o, nil if the batch does not grow.
// All members execute the same commit on the same bits, so all get the same error, unless an Updater
// fails at this peer. Then the state is invalid; after other errors nothing has changed.
func (s *state) commit(o outcome, next exact.Scale, grown *growth.State) error {
	for i, v := range s.grads.staging.views {
		if !s.unchecked && !s.grads.checked && !kernel.Finite(v[:s.unmeant(i)]) { // the other elements were checked when they were updated
			return fmt.Errorf("gradient of %s summed over all peers: %w; lower the learning rate, or check the data", s.params[i].Name, ErrNotFinite)
		}
	}
	apply, mean, err := s.rules.toApply(o.Step, s.grads)
	if err != nil {
		return err
	}
	if o.skipped() {
		mean = nil // parameters and optimizer stay as they are
	} else if s.updater != nil {
		if !s.grads.copied {
			for i, v := range s.given {
				copy(v, mean[i])
			}
		}
		c := optim.Commit{Step: o.Step, Epoch: o.Epoch, Peers: o.Peers, Samples: o.Samples, Weight: o.weight(), Loss: o.meanLoss()}
		if err := s.updater.Apply(c, mean); err != nil {
			s.invalidate()
			return fmt.Errorf("update the parameters: %w", err)
		}
		mean = nil
	}
	// A part of each parameter may have been updated early; apply the rest.
	for i, v := range mean {
		param, slots := s.undo.remaining(i)
		apply(param, v[:len(param)], slots)
	}
	s.undo.commit()
	s.grads.swap()
	s.grow(grown)
	s.scale, s.digested = next, 0
	was := s.last
	s.last = o
	s.observer.advanced(was, o)
	return nil
}

// grow makes g the growth of the batch, in all copies of the plan; nil if the batch does not grow.
func (s *state) grow(g *growth.State) {
	if g != nil {
		*s.plan.grown = *g
	}
}

// complete applies the mean gradient that a delay has held back, after the last step. takeBack
// undoes that.
func (s *state) complete() (takeBack func(), err error) {
	if !s.rules.delay {
		return func() {}, nil
	}
	apply, err := s.rules.of(s.committed())
	if err != nil {
		return nil, err
	}
	s.undo.reserve()
	s.undo.advance(s.grads.applied.views, apply)
	return s.undo.rollback, nil
}

// unmeant returns the length of the prefix of parameter i's staged sum that is not a mean yet: it
// has not been divided by the number of samples.
func (s *state) unmeant(i int) int {
	if s.rules.delay {
		return len(s.params[i].Data)
	}
	return s.undo.left(i)
}

// vectors returns the vectors of a saved state: the parameters, the optimizer state, and the
// gradient that a delay holds back.
func (s *state) vectors() [][]float32 {
	all := s.undo.vectors()
	if s.rules.delay {
		all = append(all, s.grads.applied.views...)
	}
	return all
}

// header returns the header of the state after the last committed step, with outcome o.
func (s *state) header(o outcome) header {
	h := header{Outcome: o, Exponents: s.scale.Exponents(), Slots: s.rules.optimizer.Slots()}
	for _, p := range s.params {
		h.Sizes = append(h.Sizes, len(p.Data))
	}
	if s.plan.grown != nil {
		now := *s.plan.grown // a copy, because the state goes on
		h.Growth = &now
	}
	h.Updater = s.updater != nil
	return h
}

// check validates a received header against this job, and returns its scale.
func (s *state) check(h header) (exact.Scale, error) {
	if err := h.fits(s.header(outcome{})); err != nil {
		return exact.Scale{}, err
	}
	then := s.plan
	switch then.grown = h.Growth; {
	case (h.Growth == nil) != (s.plan.grown == nil):
		return exact.Scale{}, errors.New("the batch grows only in one of the two: set equal Config.Growth")
	case h.Growth != nil:
		if err := s.plan.rule.Check(*h.Growth, h.Outcome.Step); err != nil {
			return exact.Scale{}, err
		}
	}
	if err := h.Outcome.check(then); err != nil {
		return exact.Scale{}, err
	}
	return s.plan.scale(h.Exponents)
}

// digest returns the digest of the parameters after the last committed step, and caches it.
func (s *state) digest() uint64 {
	if s.digested == 0 {
		s.digested = digestOf(s.replicated())
	}
	return s.digested
}

// replicated returns the parameters after the last committed step.
func (s *state) replicated() [][]float32 { return s.undo.vectors()[:len(s.params)] }

// Approximate implements elastic.State's optional method.
func (s *state) Approximate() bool { return s.inexact }

// dueDigest returns the digest after the last committed step if that step's digest is due
// (digestDue); otherwise 0.
func (s *state) dueDigest() uint64 {
	// A digest reads all parameters, which would take longer than the step of a large model.
	if s.inexact && s.committed()%level.Every != 0 || !s.inexact && !digestDue(s.committed(), s.params) {
		return 0
	}
	return s.digest()
}

// fingerprint identifies a state. All ranks must have equal fingerprints before a step.
type fingerprint struct {
	committed int64 // last committed step
	// digest is the digest of the parameters.
	digest uint64
}

// String describes the state for an error.
func (f fingerprint) String() string {
	return fmt.Sprintf("digest %016x after step %d", f.digest, f.committed)
}

// digestBytes bounds the cost of digests: the average number of parameter bytes that are digested
// per step.
const digestBytes = 1 << 20

// digestDue reports whether the digest of the parameters after a step is due: after every step for
// small models, and after every n-th step for larger ones, where n grows with the model. All peers
// decide alike.
func digestDue(step int64, params []Param) bool {
	elements := 0
	for _, p := range params {
		elements += len(p.Data)
	}
	return step%int64(ceilDiv(4*elements, digestBytes)) == 0
}

// digestOf returns a fast hash (xxHash64) of the parameters in declaration order. It detects
// divergence between the peers of a job; it does not resist forgery.
func digestOf(params [][]float32) uint64 {
	h := xxhash.New()
	for _, p := range params {
		h.Write(kernel.Bytes(p)) // never fails
	}
	return h.Sum64()
}
