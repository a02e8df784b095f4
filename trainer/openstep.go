package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/optim"
)

// openStep is the step after the last committed step from this peer's point of view: its
// contribution, the shares of all ranks, and the reduction of the gradients. One openStep is used
// for the whole run: it outlives sessions, and after a commit it becomes the next step.
//
// It is not safe for concurrent use. Its methods run in the goroutine of Run, also while the next
// step begins; only the exchange of reports has its own goroutine.
type openStep struct {
	cfg   Config
	plan  plan
	model Model
	state *state // before the step
	// own is the contribution of this peer to this step.
	own     contribution
	reducer reducer
	// balance divides the microbatches among the ranks of the session.
	balance balance
	noise   noise // estimate of the noise scale
	// audits checks the contributions of other members; nil without Gradients.Audit.
	audits *audits
	ahead  *prefetcher
	// retries asks before this peer computes microbatches whose members are gone.
	retries retries
	// most bounds the microbatches in a call of the model. A lack of memory lowers it.
	most int
	// next is the try at this step if the first call of the try began before the commit of the
	// previous step; otherwise nil.
	next *try
	// work has the measurements of this peer in the last step to which it contributed.
	work work
}

// newOpenStep allocates the memory of the first step and of the state before it. The caller sets
// the observer of the state, whose advanced must call advance, and then calls reopen.
func newOpenStep(cfg Config, m Model) (*openStep, error) {
	l := newLayout(m.Params, cfg.Gradients.BucketBytes/4)
	if m.Order != nil {
		if err := l.completeIn(m.Order(overlaps(m, cfg.Gradients))); err != nil {
			return nil, err
		}
	}
	o := &openStep{cfg: cfg, plan: newPlan(cfg), model: m, ahead: newPrefetcher(m.Prefetch), most: mostOf(m, cfg.Microbatch, cfg.Gradients.Exact)}
	coding, err := compress.Parse(cfg.Gradients.Compression)
	if err != nil {
		return nil, fmt.Errorf("trainer: Gradients.Compression: %w", err)
	}
	var coded *compressedAccumulator
	var grads *gradientBuffers
	var scale exact.Scale
	// The accumulator defines the mode; everything else is common to all modes.
	switch {
	case coding != nil:
		coded, grads = newCompressedAccumulator(l, coding, func() stepPlan { return o.plan.step(o.own.step) })
		o.own.sums = coded
	case cfg.Gradients.Exact:
		if scale, err = exact.New(len(l.params), o.plan.mostMicrobatches()); err != nil {
			return nil, fmt.Errorf("trainer: exact mode: %w", err)
		}
		var own *exactAccumulator
		own, grads = newExactAccumulator(l)
		o.own.sums, o.audits = own, newAudits(cfg, m, own)
	default:
		o.own.sums, grads = newFloatAccumulator(l)
	}
	o.state = newState(o.plan, cfg, l.params, grads, scale)
	o.reducer = reducer{layout: l, bucketBytes: cfg.Gradients.BucketBytes, sums: o.own.sums, coded: coded, log: cfg.Hooks.log}
	o.reducer.links.bytes = o.reducer.bytes()
	o.balance = balance{plan: o.plan, most: cfg.Balancing.MaxShare, pipelined: cfg.Gradients.Delay}
	o.noise = newNoise(l.size(), coded.sparse())
	return o, nil
}

// microbatches returns the number of microbatches of the step; 0 after the last step.
func (o *openStep) microbatches() int { return o.plan.after(o.state.committed()) }

// reopen empties the contribution, for the step after the last committed step.
func (o *openStep) reopen() {
	o.own.reset(o.state.committed()+1, 0, o.state.scale, o.microbatches())
}

// entry returns this peer's report to the other ranks of a new session, and prepares this peer
// for the session.
func (o *openStep) entry(s *elastic.Session) resumeReport {
	o.next = nil
	// A new identity means that this peer was put out meanwhile, and that others have computed
	// its microbatches.
	if id := s.View.Members[s.Rank].ID; o.own.owner != id {
		o.reopen()
		o.own.owner = id
	}
	return resumeReport{state: fingerprint{o.state.committed(), o.state.digest()}, attempt: o.own.attempt, held: o.own.held,
		exponents: o.own.scale.Exponents(), speed: o.balance.speed(), most: o.balance.most, links: o.reducer.links.row(s.View), accusing: o.audits.accusation()}
}

// enter derives the share of every rank from the entries of all ranks.
func (o *openStep) enter(s *elastic.Session, all []resumeReport) error {
	o.retries.gone(s, o.state.committed()+1, o.balance.assigned(o.state.committed(), overlaps(o.model, o.cfg.Gradients)))
	if err := o.balance.enter(o.cfg.Balancing.Policy, all, o.microbatches(), s.Rank); err != nil {
		return err
	}
	var rows [][]linkCost
	for _, e := range all {
		rows = append(rows, e.links)
	}
	o.reducer.links.enter(s, rows)
	leader, shares, kept := resumePlan(all, o.balance.wanted, o.microbatches())
	// A contribution to a lower attempt is dropped, and so is a contribution that overlaps with the
	// contribution of another rank.
	if !kept[s.Rank] {
		scale, err := o.plan.scale(all[leader].exponents)
		if err != nil {
			return fmt.Errorf("scale of %s: %w", peerName(s)(leader), err)
		}
		o.own.reset(o.state.committed()+1, all[leader].attempt, scale, o.microbatches())
	}
	o.balance.shares, o.balance.open = shares, o.state.committed()+1
	o.balance.logShares(s, o.state.committed()+1)
	return nil
}

// begin begins a try at the step.
func (o *openStep) begin(ctx context.Context, s *elastic.Session) *try {
	p := o.plan.step(o.state.committed() + 1)
	t := &try{plan: p, begun: time.Now(), whole: o.own.held.Len() == 0, before: o.own.compute}
	if o.cfg.Hooks.OnBegin != nil {
		o.cfg.Hooks.OnBegin(p.step)
	}
	o.balance.micros = 0
	o.readAhead(p, s.Rank)
	t.sums = o.reducer.start(ctx, s, p.step)
	return t
}

// contribute computes the missing microbatches of this peer's share and starts the reduction of
// every bucket. When it returns an error, all reductions on the buffers have ended.
func (o *openStep) contribute(ctx context.Context, s *elastic.Session) (*try, error) {
	t := o.next
	if o.next = nil; t == nil {
		t = o.begin(ctx, s)
	}
	share, err := o.balance.shares[s.Rank], t.failed
	if err == nil {
		err = o.own.complete(ctx, o.model, t.plan, o.own.calls(share, o.together()), t.sums, func(micros []int) error {
			if err := s.Comm.Err(); err != nil {
				return err
			}
			return o.retries.begin(ctx, s, t.plan, micros)
		})
	}
	o.retries.end()
	if err == nil {
		o.balance.measured(share.Len(), t.whole, o.own.compute-t.before)
		o.audits.contributed(s, t.plan, &o.own, o.balance.shares, o.together())
		t.computed = time.Now()
		return t, nil
	}
	// The other ranks wait for this peer's buckets. The revocation ends their wait, with err as the
	// reason. This peer's own calls must end before the buffers are reused.
	s.Comm.Revoke(err)
	_ = t.sums.wait(ctx) // only the error of the revocation
	if errors.Is(err, ErrOutOfMemory) {
		err = o.shrinkBatch(t.plan, share.Len(), err)
	}
	return t, err
}

// together returns the number of microbatches per call of the model in this session. Within a host
// there is little latency to hide, and a single microbatch fits the cache.
func (o *openStep) together() int {
	if o.reducer.between() || o.model.Whole {
		return o.most
	}
	return 1
}

// readAhead passes the prefetcher the samples that this peer will compute: the missing part of its
// share of this step, and its share of the next step if the shares do not change. rank is this
// peer's rank.
func (o *openStep) readAhead(p stepPlan, rank int) {
	if o.ahead.box == nil {
		return
	}
	rest := ledger.NewSet(p.microbatches)
	calls := o.own.calls(o.balance.shares[rank], o.together())
	for _, micros := range calls[min(1, len(calls)):] { // the first call reads its samples now
		for _, k := range micros {
			rest.Add(k)
		}
	}
	needs := []need{{p, rest}}
	if p.step < o.plan.steps {
		next := o.plan.step(p.step + 1)
		needs = append(needs, need{next, o.balance.sharesAhead(next.microbatches)[rank]})
	}
	o.ahead.want(needs)
}

// shrinkBatch handles a model that has run out of memory. It halves the microbatches per call, or,
// at one microbatch per call, bounds this peer's share at half its current size. It returns an error
// that makes all ranks leave the session, because the others learn the bound at the entry of the
// next session. If the share has only one microbatch, the error ends the job at this peer. The
// failed call may have added a part of its gradients to the sums, so all computed microbatches are
// dropped. No reduction may be under way.
func (o *openStep) shrinkBatch(p stepPlan, share int, cause error) error {
	switch n := min(share, o.together()); {
	case n > 1:
		o.most = n / 2
		o.cfg.Hooks.log("this peer computes at most %d samples at once from now on: %v", o.most*p.micro, cause)
	case share > 1:
		o.balance.most = share / 2
		o.cfg.Hooks.log("this peer computes at most %d microbatches of a step from now on: %v", o.balance.most, cause)
	default:
		return fmt.Errorf("not even a single microbatch fits: lower Config.Microbatch: %w", cause)
	}
	o.own.reset(p.step, o.own.attempt, o.own.scale, p.microbatches)
	return fmt.Errorf("%w: %w", errNextSession, cause)
}

// report returns this peer's report for a commit record: its contribution, and the state before
// the step.
func (o *openStep) report() rankReport {
	mine := idleReport(o.state)
	mine.samples, mine.loss, mine.fault = int64(o.own.samples), o.own.loss, o.own.fault()
	mine.micros, mine.maxShare = o.balance.micros, int64(o.balance.most)
	if o.noise.due(o.own.step) {
		mine.squareNorm = o.own.sums.square()
	}
	o.audits.tell(&mine)
	return mine
}

// conclude commits the step whose commit record is complete, or begins another attempt if the
// sums do not fit the scale. All ranks come to the same result, errors included.
func (o *openStep) conclude(s *elastic.Session, p stepPlan, reports []rankReport) (committed bool, err error) {
	if err := checkFaults(reports, peerName(s), o.reducer.layout.params); err != nil {
		return false, err
	}
	samples, loss := totals(reports)
	// A sanity check of the ledger. It compares only totals: it cannot detect a missing sample if
	// another sample was added twice.
	if want := int64(p.end - p.first); samples != want {
		return false, fmt.Errorf("peers contributed %d samples, the step has %d", samples, want)
	}
	next, fits := o.own.sums.mean(samples, o.state.unmeant)
	// The peaks are reduced, so all ranks find the same overflow and begin the same attempt.
	if !fits {
		o.own.reset(p.step, o.own.attempt+1, next, p.microbatches)
		o.balance.assignShares(s, p.step)
		return false, nil
	}
	// The fingerprints need the sums, which the commit clears.
	o.audits.concluded(p.step, reports)
	norm := math.NaN() // norm of the mean gradient; NaN if neither clipping nor the noise scale needs the norm
	switch mean := o.state.grads.staging.views; {
	case o.cfg.Gradients.Clip > 0:
		norm = optim.Clip(mean, o.cfg.Gradients.Clip)
	case o.noise.due(p.step):
		norm = optim.Norm(mean)
	}
	done := outcome{Step: p.step, Attempt: o.own.attempt, Epoch: s.View.Epoch, Peers: len(reports), Samples: samples, Loss: loss}
	for rank, m := range s.View.Members {
		done.Shares = append(done.Shares, share{m.ID, o.balance.shares[rank].Ranges()})
	}
	if err := o.state.commit(done, next); err != nil {
		return false, err
	}
	o.updateNoise(p.step, reports, s.Rank, norm)
	o.balance.learn(reports, p.step+1, s.Rank)
	o.balance.assignShares(s, p.step+1)
	return true, nil
}

// updateNoise updates the noise scale with the gradient norms of a step that was just committed.
func (o *openStep) updateNoise(step int64, reports []rankReport, rank int, norm float64) {
	if !o.noise.due(step) {
		return
	}
	o.noise.observe(reports, square(norm))
	o.work.noiseScale = o.noise.scale()
	if mine := reports[rank]; mine.samples > 0 {
		o.work.gradNorm = math.Sqrt(mine.squareNorm) / float64(mine.samples)
	}
}

// advance closes this step if it is the step of the outcome done, and opens the step after done.
func (o *openStep) advance(done outcome) {
	if o.own.step == done.Step {
		_, counted := done.share(o.own.owner)
		o.reducer.coded.commit(counted)
		o.work = work{step: done.Step, compute: o.own.compute, recomputed: o.own.recomputed, predicted: o.balance.predicted}
		o.work.sent, o.work.raw = o.reducer.coded.traffic()
	}
	o.reopen()
}

// mostOf returns the largest number of microbatches in one call of the model. samples is the number
// of samples of a microbatch.
func mostOf(m Model, samples int, exactly bool) int {
	if m.Whole {
		return math.MaxInt
	}
	// Exact mode needs the gradient of each microbatch by itself.
	if exactly && !m.Grouped {
		return 1
	}
	return max(1, m.MaxSamples/samples)
}
