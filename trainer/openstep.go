package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/growth"
	"github.com/elrun/elrun/trainer/internal/laps"
	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/internal/steal"
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
	clock   *laps.Clock // divides the time of the goroutine of Run; own has it, too
	reducer reducer
	// balance divides the microbatches among the ranks of the session.
	balance balance
	noise   growth.Noise // estimate of the noise scale
	norm    float64      // norm of this peer's mean gradient, where the noise is measured
	// queue has what this peer has not begun of its share, and what it steals from others.
	queue steal.Queue
	// audits checks the contributions of other members; nil without Gradients.Audit.
	audits *audits
	ahead  *prefetcher
	told   []need // to Model.Ahead
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
	o := &openStep{cfg: cfg, plan: newPlan(cfg), model: m, ahead: newPrefetcher(m.Prefetch), most: mostOf(m, cfg.Microbatch, cfg.Gradients.Exact), clock: new(laps.Clock)}
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
		o.own.sums, err = coded, coded.use(m)
	case cfg.Gradients.Exact:
		if scale, err = exact.New(len(l.params), o.plan.mostMicrobatches()); err != nil {
			return nil, fmt.Errorf("trainer: exact mode: %w", err)
		}
		var own *exactAccumulator
		own, grads = newExactAccumulator(l)
		if o.plan.grown != nil {
			own.first = l.vector().views
		}
		own.given = m.Grads
		o.own.sums, o.audits = own, newAudits(cfg, m, own)
	default:
		var own *floatAccumulator
		own, grads = newFloatAccumulator(l)
		o.own.sums, err = own, own.use(m)
	}
	if err != nil {
		return nil, err
	}
	o.own.clock, o.own.unweighable, o.own.gradScale = o.clock, weighable(m, cfg), m.gradScale()
	o.state = newState(o.plan, cfg, l.params, grads, scale)
	o.state.updater, o.state.inexact, o.state.unchecked, o.state.given = m.Updater, m.Updater != nil && !cfg.Gradients.Exact, m.NotFinite, m.Grads
	o.reducer = reducer{layout: l, bucketBytes: cfg.Gradients.BucketBytes, sums: o.own.sums, coded: coded, log: cfg.Hooks.log}
	o.reducer.links.bytes = o.reducer.bytes()
	o.balance = balance{plan: o.plan, most: cfg.Balancing.MaxShare, pipelined: cfg.Gradients.Delay}
	// With a sparse coding the sum of a step contains parts of earlier gradients, which hide the noise.
	if !coded.sparse() {
		o.noise = growth.NewNoise(l.size(), o.plan.grown != nil)
	}
	if o.plan.grown != nil && !o.noise.Measures() {
		return nil, fmt.Errorf("trainer: Growth and Compression %q are both set: a sparse coding hides the noise of the gradients; leave one of them out", cfg.Gradients.Compression)
	}
	// In an audit others compute a share again, which must not change meanwhile. A whole share is one call.
	started := time.Now()
	o.queue = steal.Queue{Now: func() int64 { return int64(time.Since(started)) }, FirstCall: firstCall,
		Far: cfg.Balancing.Steal == StealFar, Wait: waitFor,
		Allowed: cfg.Balancing.Steal != StealOff && !m.Whole && cfg.Gradients.Audit == 0 && o.plan.mostMicrobatches() <= steal.Most}
	o.reducer.words = reportWords
	return o, nil
}

// weighable returns an error if a run cannot have weights.
func weighable(m Model, c Config) error {
	switch {
	case c.Gradients.Delay || overlaps(m, c.Gradients):
		return errors.New("Batch.Weight was called in a run with Model.Waits or Gradients.Delay, which update before all weights are known: leave both out")
	case c.Gradients.Audit != 0:
		return errors.New("Batch.Weight was called in a run with Gradients.Audit, which cannot check weights: leave Audit out")
	case c.Growth != (Growth{}):
		return errors.New("Batch.Weight was called in a run with Config.Growth, whose noise is that of samples of equal weight: leave Growth out")
	}
	return nil
}

// waitFor waits until woken receives, or for some nanoseconds.
func waitFor(woken <-chan struct{}, most int64) {
	timer := time.NewTimer(time.Duration(most))
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	}
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
	digest := o.state.dueDigest()
	if !o.state.inexact {
		digest = o.state.digest()
	}
	return resumeReport{state: fingerprint{o.state.committed(), digest}, attempt: o.own.attempt, held: o.own.held,
		exponents: o.own.scale.Exponents(), speed: o.balance.speed(), most: o.balance.most, links: o.reducer.links.row(s.View), accusing: o.audits.accusation()}
}

// enter derives the share of every rank from the entries of all ranks.
func (o *openStep) enter(s *elastic.Session, all []resumeReport) error {
	assigned := o.balance.assigned(o.state.committed(), overlaps(o.model, o.cfg.Gradients))
	assigned[o.balance.open] = o.queue.Suspects(assigned[o.balance.open])
	o.retries.gone(s, o.state.committed()+1, assigned)
	if err := o.balance.enter(o.cfg.Balancing.Policy, all, o.microbatches(), s.Rank); err != nil {
		return err
	}
	var rows [][]linkCost
	for _, e := range all {
		rows = append(rows, e.links)
	}
	o.reducer.links.enter(s, rows)
	leader, shares, kept := resumePlan(all, o.balance.target.wanted, o.microbatches())
	// A contribution to a lower attempt is dropped, and so is a contribution that overlaps with the
	// contribution of another rank.
	if !kept[s.Rank] {
		scale, err := o.plan.scale(all[leader].exponents)
		if err != nil {
			return fmt.Errorf("scale of %s: %w", peerName(s)(leader), err)
		}
		o.own.reset(o.state.committed()+1, all[leader].attempt, scale, o.microbatches())
	}
	held := make([]ledger.Set, len(all))
	for rank, e := range all {
		if kept[rank] {
			held[rank] = e.held
		}
	}
	o.queue.Broken = s.Comm.Err
	o.queue.Enter(s.View.Hosts(), s.Rank, s.Comm.Board(), s.Comm.Notes(), held)
	o.reducer.words = reportWords
	if o.queue.Active() {
		o.reducer.words += stealWords
	}
	o.balance.shares, o.balance.open = shares, o.state.committed()+1
	o.balance.logShares(s, o.state.committed()+1)
	return nil
}

// resumePlan derives from the reports of all ranks how the open step goes on: leader is the rank
// with the highest attempt, with which all ranks continue; shares are the microbatches of each
// rank, as close to the wanted numbers as the held microbatches allow; kept is true for a rank that
// keeps its contribution. It is a pure function, so all ranks come to the same result.
func resumePlan(all []resumeReport, wanted []int, microbatches int) (leader int, shares []ledger.Set, kept []bool) {
	for rank, e := range all {
		if e.attempt > all[leader].attempt {
			leader = rank
		}
	}
	held := make([]ledger.Set, len(all))
	for rank, e := range all {
		if e.attempt == all[leader].attempt {
			held[rank] = e.held
		}
	}
	shares, kept = ledger.Assign(held, wanted, microbatches)
	for rank, e := range all {
		kept[rank] = kept[rank] && e.attempt == all[leader].attempt
	}
	return leader, shares, kept
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
	o.queue.Open(o.balance.shares, o.own.calls(o.balance.shares[s.Rank], o.together()), o.together())
	t.sums = o.reducer.start(ctx, s, p.step)
	o.clock.Begin(time.Now())
	return t
}

// contribute computes the missing microbatches of this peer's share and starts the reduction of
// every bucket. When it returns an error, all reductions on the buffers have ended.
func (o *openStep) contribute(ctx context.Context, s *elastic.Session) (*try, error) {
	t := o.next
	o.next = nil
	if t == nil {
		t = o.begin(ctx, s)
	}
	share, err := o.balance.shares[s.Rank], t.failed
	o.queue.Bound = o.balance.most
	if err == nil {
		err = o.own.complete(ctx, o.model, t.plan, &o.queue, t.sums, func(micros []int) error {
			if err := s.Comm.Err(); err != nil {
				return err
			}
			if o.noise.Due(t.plan.step) && !o.firstOnly() && o.own.samples > 0 && o.own.group == 0 {
				o.own.group, o.own.groupNorm = o.own.samples, o.own.perSample(o.own.sums.square())
			}
			return o.retries.begin(ctx, s, t.plan, micros)
		})
	}
	o.retries.end()
	if err == nil {
		o.balance.measured(share.Len(), o.own.held.Len(), t.whole, o.own.compute-t.before)
		o.audits.contributed(s, t.plan, &o.own, o.balance.shares, o.together())
		t.computed = o.clock.Computed(time.Now())
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

// try is a try at a step within one session.
type try struct {
	// plan has the samples and microbatches of the step.
	plan  stepPlan
	begun time.Time  // start of the try
	sums  *reduction // reduction of the buckets
	// whole is set if nothing of this peer's share was computed when the try began.
	whole bool
	// before is the time that this peer has spent computing the same step before this try.
	before time.Duration
	// claimed is the part of the computing time of the first call that fell within the previous
	// step.
	claimed time.Duration
	// following is the computing time of the next step's first call within this step. It is
	// subtracted from the times of this step.
	following time.Duration
	// failed is the error of the call that began within the previous step.
	failed error

	// computed is the time at which this peer's share was complete.
	computed time.Time
}

// readyAt returns the callback for complete gradients. All calls of a share add to
// the same sums. So only the last call reports parts of the sums as ready to be reduced.
func (t *try) readyAt(last bool) func(i, from int) {
	if last {
		return t.sums.ready
	}
	return ignore
}

// exchanged is the result of awaitReports.
type exchanged struct {
	// reports has the report of each rank, from the commit record.
	reports []rankReport
	// The sums were complete at the first time, and the commit record at the second.
	summed, complete time.Time
	err              error
}

// awaitReports waits for the sums of all buckets, and then for the reports of all ranks. Success
// proves that the contribution of every rank is in the sums at every rank.
func (t *try) awaitReports(ctx context.Context, s *elastic.Session, mine rankReport, r *reducer) exchanged {
	if err := t.sums.wait(ctx); err != nil {
		return exchanged{err: fmt.Errorf("step %d: %w", t.plan.step, err)}
	}
	summed := time.Now()
	reports, err := r.exchangeReports(ctx, s, mine)
	return exchanged{reports, summed, time.Now(), err}
}

// fewestCalls is the number of calls of the model for an equal share where microbatches are stolen
// between hosts: what a call has begun cannot be stolen.
const fewestCalls = 8

// together returns the number of microbatches per call of the model in this session. Within a host
// there is little latency to hide, and a single microbatch fits the cache.
func (o *openStep) together() int {
	switch {
	case !o.reducer.between() && !o.model.Whole:
		return 1
	case o.queue.Distant():
		return max(1, min(o.most, o.plan.fullMicrobatches(o.state.committed()+1)/len(o.balance.shares)/fewestCalls))
	}
	return o.most
}

// readAhead passes the prefetcher the samples that this peer will compute: the missing part of its
// share of this step, and its share of the next step if the shares do not change. If the next step is
// short, its share of the step after it follows. rank is this peer's rank.
func (o *openStep) readAhead(p stepPlan, rank int) {
	if o.ahead.box == nil && o.model.Ahead == nil {
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
	for step := p.step + 1; step <= o.plan.last(); step++ {
		next := o.plan.step(step)
		needs = append(needs, need{next, o.balance.sharesAhead(next.microbatches)[rank]})
		if next.microbatches >= o.plan.fullMicrobatches(step) {
			break // a short step is too short for reading what follows it
		}
	}
	if o.model.Ahead != nil {
		var missing []need
		missing, o.told = fresh(needs, o.told)
		for _, n := range missing {
			o.model.Ahead(n.plan.step, n.samples())
		}
	}
	if o.ahead.box != nil {
		o.ahead.want(needs)
	}
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
	mine.samples, mine.weights, mine.loss, mine.fault = int64(o.own.samples), o.own.weights, o.own.loss, o.own.fault()
	mine.micros, mine.maxShare, mine.busy = o.balance.micros, int64(o.balance.most), o.clock.Busy().Microseconds()
	if o.noise.Due(o.own.step) {
		all := o.own.perSample(o.own.sums.square())
		o.norm = math.Sqrt(all) / float64(max(1, o.own.samples))
		mine.group, mine.groupNorm = int64(o.own.group), o.own.groupNorm
		switch {
		case o.firstOnly():
			mine.group, mine.groupNorm = o.firstMicrobatch()
		case mine.group == 0:
			mine.group, mine.groupNorm = mine.samples, all
		}
	}
	o.audits.tell(&mine)
	mine.stolen = o.queue.Report(o.own.held)
	return mine
}

// firstOnly reports whether the noise of a step is measured by its first microbatch. In exact mode with
// growth it must not depend on the shares.
func (o *openStep) firstOnly() bool { return o.plan.grown != nil && o.cfg.Gradients.Exact }

// firstMicrobatch returns the samples of the first microbatch of the step, and the squared norm of the
// sum of their gradients; 0 if this peer has not computed it.
func (o *openStep) firstMicrobatch() (samples int64, norm float64) {
	own, ok := o.own.sums.(*exactAccumulator)
	if !ok || !o.own.held.Has(0) {
		return 0, 0
	}
	p := o.plan.step(o.own.step)
	return int64(p.samplesIn([][2]int{{0, 1}})), square(optim.Norm(own.first) / o.own.gradScale)
}

// conclude commits the step whose commit record is complete, or begins another attempt if the
// sums do not fit the scale. All ranks come to the same result, errors included.
func (o *openStep) conclude(s *elastic.Session, p stepPlan, reports []rankReport) (committed bool, err error) {
	if err := checkFaults(reports, peerName(s), o.reducer.layout.params); err != nil {
		return false, err
	}
	samples, loss := totals(reports)
	weights := totalWeights(reports)
	if weights.Mixed() {
		return false, fmt.Errorf("%w: some calls of Gradient have called Batch.Weight, and others have not: call it in each, or in none", ErrWeights)
	}
	held, err := o.holdings(reports)
	if err != nil {
		return false, err
	}
	// A sanity check of the ledger. It compares only totals: it cannot detect a missing sample if
	// another sample was added twice.
	if want := int64(p.end - p.first); samples != want {
		return false, fmt.Errorf("peers contributed %d samples, the step has %d", samples, want)
	}
	done := outcome{Step: p.step, Attempt: o.own.attempt, Epoch: s.View.Epoch, Peers: len(reports), Samples: samples, Loss: loss}
	if weights.Differ() {
		done.Weight = &weights.Sum
	}
	// If all samples were skipped, the sums are zero.
	divisor := o.own.gradScale
	if w := done.weight(); w > 0 {
		divisor *= w
	}
	next, fits := o.own.sums.mean(divisor, o.state.unmeant)
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
	case o.noise.Due(p.step):
		norm = optim.Norm(mean)
	}
	for rank, m := range s.View.Members {
		done.Shares = append(done.Shares, share{m.ID, held[rank].Ranges()})
	}
	measured, grown := o.measure(p.step, reports, norm)
	if err := o.state.commit(done, next, grown); err != nil {
		return false, err
	}
	o.noise.Averages, o.work.noiseScale = measured, measured.Scale()
	if o.noise.Due(p.step) {
		o.work.gradNorm = o.norm
	}
	o.balance.learn(reports, p.step+1, s.Rank)
	o.balance.assignShares(s, p.step+1)
	return true, nil
}

// measure returns the averages of the noise after a step that is about to be committed, from the norm
// of its mean gradient, and with growth also the growth of the batch.
func (o *openStep) measure(step int64, reports []rankReport, norm float64) (growth.Averages, *growth.State) {
	measured := o.noise
	if measured.Due(step) {
		var groups growth.Groups
		batch := int64(0)
		for _, r := range reports {
			batch += r.samples
			groups.Add(r.group, r.groupNorm)
		}
		measured.Observe(groups, float64(batch), square(norm))
	}
	if o.plan.grown == nil {
		return measured.Averages, nil
	}
	grown := o.plan.rule.After(*o.plan.grown, step, measured.Averages)
	return measured.Averages, &grown
}

// holdings returns the microbatches that each rank has contributed to the open step. An error means
// that they are not those of which the commit record tells.
func (o *openStep) holdings(reports []rankReport) ([]ledger.Set, error) {
	if !o.queue.Active() {
		return o.balance.shares, nil
	}
	var stolen []steal.Report
	for _, r := range reports {
		stolen = append(stolen, r.stolen)
	}
	held, err := o.queue.Held(o.balance.shares, stolen)
	if err != nil {
		return nil, fmt.Errorf("stolen microbatches: %w", err)
	}
	return held, nil
}

// checkFaults returns an error that wraps ErrNotFinite for the first rank with a fault; nil if
// there is none.
func checkFaults(reports []rankReport, name func(rank int) string, params []Param) error {
	for r, s := range reports {
		// A fault of a gradient has the index of the parameter added to its code.
		switch i := int(s.fault - faultGradient); {
		case s.fault == faultNone:
		case s.fault == faultLoss:
			return fmt.Errorf("loss of %s: %w; lower the learning rate, or check the data", name(r), ErrNotFinite)
		case i >= 0 && i < len(params):
			return fmt.Errorf("gradient of %s at %s: %w; lower the learning rate, or check the data", params[i].Name, name(r), ErrNotFinite)
		default:
			return fmt.Errorf("unknown fault %d at %s: %w", s.fault, name(r), ErrNotFinite)
		}
	}
	return nil
}

// totals returns the sums of samples and losses over all ranks. Both are integers, so the order
// does not matter.
func totals(reports []rankReport) (samples int64, loss ledger.Sum) {
	for _, s := range reports {
		samples += s.samples
		loss = loss.Plus(s.loss)
	}
	return samples, loss
}

// totalWeights returns the weights of a step from the reports of all ranks.
func totalWeights(reports []rankReport) (total ledger.Weights) {
	for _, r := range reports {
		w := r.weights
		if !w.Differ() {
			w = ledger.Count(r.samples)
		}
		total = total.Plus(w)
	}
	return total
}

// advance closes this step if it is the step of the outcome done, and opens the step after done.
func (o *openStep) advance(done outcome) {
	if o.own.step == done.Step {
		_, counted := done.share(o.own.owner)
		o.reducer.coded.commit(counted)
		o.work = work{step: done.Step, compute: o.own.compute, recomputed: o.own.recomputed, predicted: o.balance.target.predicted, stolen: o.queue.Stolen()}
		o.work.sent, o.work.raw = o.reducer.coded.traffic()
	}
	// The noise decides the next growth, so all members have that of the state.
	if o.plan.grown != nil {
		o.noise.Averages = o.plan.grown.Noise
	}
	o.reopen()
}

// mostOf returns the largest number of microbatches in one call of the model. samples is the number
// of samples of a microbatch.
func mostOf(m Model, samples int, exactly bool) int {
	if m.Whole && m.MaxSamples == 0 {
		return math.MaxInt
	}
	// Exact mode needs the gradient of each microbatch by itself.
	if exactly && !m.Grouped {
		return 1
	}
	return max(1, m.MaxSamples/samples)
}

// Pipelining of steps: the next step begins while the sums of the open step are still being
// reduced. Parameters are updated as their sums arrive (undoLog). The first call of the next share
// waits for each parameter (Batch.Wait) and so follows the updates. The memory for its gradients is
// still in use by the open step. So the open step is finished when the call asks for this memory
// (Batch.Grad).

// forward is a forward pass under way, while sums of the previous step arrive.
type forward struct {
	undo    *undoLog      // the parameters to update
	sums    *reduction    // reduction of the open step
	values  [][]float32   // reduced sums, by parameter
	divisor float64       // of the sums
	apply   rule          // the optimizer's update
	clock   *laps.Clock   // of the open step
	broken  func() error  // returns why no more sums will arrive
	waited  time.Duration // time spent waiting for parameters
}

// need returns when the elements [from:] of parameter i may be read. While it waits for a sum, it
// updates parameters whose sums have arrived, which the model will need next.
func (f *forward) need(ctx context.Context, i, from int) error {
	begun := f.clock.Ahead(time.Now())
	defer func() { f.waited += f.clock.Lap(time.Now(), laps.Apply).Sub(begun) }()
	if err := f.broken(); err != nil {
		return err
	}
	// While the sum is in flight, update other parameters, which would otherwise be updated later.
	for !f.sums.has(i, from, f.undo.left(i)) && f.another() {
		f.sums.yield()
	}
	f.clock.Lap(time.Now(), laps.Apply)
	if err := f.sums.waitFor(ctx, i, from, f.undo.left(i)); err != nil {
		return err
	}
	f.clock.Lap(time.Now(), laps.Reduce)
	return f.undo.update(i, from, f.values[i], f.divisor, f.apply)
}

// another updates one block whose sums have arrived, and reports whether there was one. It tries
// the end of the last parameter that is not fully updated, because most models complete the
// gradients there first.
func (f *forward) another() bool {
	for i := range slices.Backward(f.undo.params) {
		if end := f.undo.left(i); end > 0 {
			from := max(0, end-updateBlock)
			return f.sums.has(i, from, end) && f.undo.update(i, from, f.values[i], f.divisor, f.apply) == nil
		}
	}
	return false
}

// overlaps reports whether a step may begin before the previous step is finished. Without a delay
// this needs a model that waits for its parameters, and updates that depend on the sums of one
// parameter only. Exact mode and clipping are excluded: in exact mode the peaks of all parameters
// decide whether the step is repeated, and a clip limit depends on the norm of all sums.
func overlaps(m Model, g Gradients) bool { return g.Delay || m.Waits && !g.Exact && g.Clip == 0 }

// errAnother is the reason to drop a call that began before the share was decided, if the decided
// share differs from the expected share.
var errAnother = errors.New("the share of this peer has changed since the call began")

// lookAhead makes the first call of the step after step t, if that call may begin now. The
// call runs finish, which ends step t, before it computes gradients.
func (o *openStep) lookAhead(ctx context.Context, s *elastic.Session, t *try, finish func() error) {
	if !overlaps(o.model, o.cfg.Gradients) || t.plan.step >= o.plan.last() {
		return
	}
	u, next := o.state.undo, o.plan.step(t.plan.step+1)
	// A newly opened step holds no microbatches, so the whole expected share is missing.
	missing := o.balance.sharesAhead(next.microbatches)[s.Rank].Without(ledger.NewSet(next.microbatches))
	apply, mean, err := o.state.rules.toApply(t.plan.step, o.state.grads)
	if len(missing) == 0 || err != nil {
		return
	}
	u.reserve()
	f := forward{undo: u, sums: t.sums, values: mean, divisor: float64(t.plan.end-t.plan.first) * o.own.gradScale, broken: s.Comm.Err, apply: apply, clock: o.clock}
	l := newCall(o.model, next, callsOf(missing, o.together())[0], o.own.sums)
	l.broken = s.Comm.Err
	// With a delay the gradient to apply is complete; without one the call waits for each sum.
	o.clock.Lap(time.Now(), laps.Reduce)
	if o.cfg.Gradients.Delay {
		u.advance(mean, apply)
	} else {
		l.coming = func(i, from int) error { return f.need(ctx, i, from) }
	}
	// At the first gradient the open step is finished. If that fails, or the decided share differs
	// from the expected share, the call goes on with scratch memory, and its result is dropped.
	l.opening = func() {
		t.following = o.clock.Ahead(time.Now()).Sub(l.begun) - f.waited
		if err := o.follow(ctx, s, t, l, finish); err != nil {
			l.useless, l.sink = err, u.scratch()
		}
		l.begun = o.clock.Lap(time.Now(), laps.Point)
	}
	l.begun = o.clock.Lap(time.Now(), laps.Apply)
	err = l.run(o.model)
	if l.useless != nil {
		o.clock.Lap(time.Now(), laps.Compute)
		return
	}
	o.next.failed = o.own.take(l, err)
}

// follow finishes the open step, begins the next step, and makes l, which has begun before, the
// first call of the next step. An error is the reason to discard the result of l.
func (o *openStep) follow(ctx context.Context, s *elastic.Session, t *try, l *call, finish func() error) error {
	if err := finish(); err != nil {
		return err
	}
	if l.useless != nil {
		return l.useless
	}
	o.next = o.begin(ctx, s)
	// The early call counts only if it is the first call of the share as finally decided.
	first := o.queue.First()
	if o.next.failed != nil || o.next.plan.step != l.step || first == nil || !slices.Equal(first, l.micros) {
		return errAnother
	}
	l.sink = o.own.sums.collect(l.micros, o.next.readyAt(o.queue.Begun()))
	o.next.claimed = t.following
	o.own.compute += t.following
	return nil
}
