package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic"
)

// job is this peer's part in a run of Run: it goes from session to session, and tries one step after
// the other. It is not safe for concurrent use.
type job struct {
	group     *elastic.Group
	cfg       Config
	plan      plan
	held      []elastic.Setting // in which all members agree
	guard     *guard
	state     *state
	step      *openStep
	decisions decisions // of the programs, between steps
	reporter  reporter  // of stable steps
	saver     *saver
	timings   stepTimings // of the steps of this session
	resyncs   int
}

// Run trains model on all peers of group until the configuration says that it is
// finished, and returns nil then. All peers call it with equal configurations
// and models; a peer that comes later gets the state of the others. Peers may come, go
// and die meanwhile. On an error the parameters are those of the last committed
// step, but for one whose cause is elastic.ErrFenced, after which they are of no use.
//
// Errors that are no mistake of the program: elastic.ErrLeft when this peer has left
// by Group.Leave, elastic.ErrQuorum when too few peers were left for too long, and
// others of elastic.ErrNoView. ErrNotFinite comes at every peer. When this peer has
// committed the last step, what happens to the group is no longer an error.
func Run(ctx context.Context, group *elastic.Group, model Model, cfg Config) error {
	return New(group, model, cfg).run(ctx, func(*job) {})
}

// newJob checks what the user gave and takes all the memory that steps need.
func newJob(group *elastic.Group, model Model, cfg Config) (*job, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := model.check(); err != nil {
		return nil, err
	}
	if model.Whole && cfg.Exact {
		return nil, errors.New("trainer: Model.Whole does not go with Exact: the result would depend on the shares; leave one of them out")
	}
	j := &job{group: group, cfg: cfg, plan: newPlan(cfg), guard: newGuard()}
	if j.step, err = newOpenStep(cfg, j.guard.of(model)); err != nil {
		return nil, err
	}
	j.step.balance.emit, j.step.reducer.emit, j.step.reducer.poll = group.Emit, group.Emit, j.guard.poll
	j.state = j.step.state
	j.state.observer = j
	j.held = settingsOf(cfg, j.plan, j.step.reducer.layout)
	j.saver = newSaver(cfg, j.plan, model.Params, j.held)
	j.saver.emit = group.Emit
	j.reporter = reporter{plan: j.plan, told: cfg.OnStep, emit: group.Emit, digest: func(int64) string { return digestText(j.state.dueDigest()) }}
	j.decisions = decisions{group: group, params: j.state.pipeline.params, of: j.plan.steps}
	j.timings.policy, j.timings.microbatches = cfg.Balance, j.plan.mostMicrobatches()
	j.step.reopen()
	return j, nil
}

// run trains until the job is finished.
func (j *job) run(ctx context.Context) (err error) {
	defer j.saver.writing.Wait()
	defer j.step.ahead.start(ctx)()
	if err := j.guard.start(func() error { return context.Cause(ctx) }); err != nil {
		return err
	}
	defer j.guard.stop()
	if err := j.saver.resume(j.state, j.group.Busy); err != nil {
		return err
	}
	j.group.Hold(j.replica(), slices.Concat(j.cfg.Settings, j.held, j.decisions.settings()))
	j.group.OnQuorumLost(func() { j.saver.now(j.state) })
	defer func() { _ = j.step.reducer.leave() }() // what is not given back goes with the process
	err = j.sessions(ctx)
	if errors.Is(err, elastic.ErrLast) { // all leave at once, as before the end of their time
		j.saver.now(j.state)
	}
	if errors.Is(err, elastic.ErrLeft) {
		j.step.reducer.giveUp("leaving", j.state.grads.applied.views)
	}
	if err != nil {
		return fmt.Errorf("trainer: after step %d of %d: %w", j.state.committed(), j.plan.steps, err)
	}
	return nil
}

// replica is what elastic levels among the members, and asks about peers that want to be some.
type replica struct {
	*state
	admitter
	trial
}

// replica returns what elastic gets to know of the job.
func (j *job) replica() replica {
	always := j.cfg.Admit == AdmitAlways
	return replica{j.state, admitter{always, j.cfg.Microbatch, &j.timings.model}, trial{j.step, always}}
}

// superseded reports the last step before others' copies take this peer to a later one, if it
// is still the peer that has contributed to it. With a whole state it gives up what compression
// has held back.
func (j *job) superseded(by int64, whole bool) {
	last, owner := j.state.last, j.step.own.owner
	if _, took := last.share(owner); took && !j.state.void && j.group.Self().ID == owner {
		j.reporter.superseded(last, owner, j.step.work, by)
	}
	if whole {
		j.step.reducer.giveUp("taking the state of others", j.state.grads.applied.views)
	}
}

// advanced opens the step after that of o.
func (j *job) advanced(was, o outcome) {
	j.reporter.advance(was, o)
	j.step.advance(o)
}

// sessions trains in one session after the other until the job is finished. A session
// that was revoked or left is followed by another one, or by the reason why there is
// none. The contribution to the open step is kept from one to the next.
func (j *job) sessions(ctx context.Context) error {
	for epoch := uint64(0); ; {
		s, err := j.group.Next(ctx, epoch)
		if err != nil && j.finished() && !j.state.void && ctx.Err() == nil {
			return j.endAlone(ctx)
		}
		if err != nil {
			return err
		}
		epoch = s.View.Epoch
		if err = j.session(ctx, s); err == nil || !goOn(err) {
			return err
		}
	}
}

// finished reports whether there is no further step.
func (j *job) finished() bool {
	return j.state.committed() >= j.plan.steps || j.decisions.stopped
}

// endAlone brings a job to its end at a peer that has committed the last step and gets
// no further session: that is no error of the job. The step is not reported unless it was
// stable before: if the others were cut off, and not killed, they may have lacked this
// peer's part of the commit record, and commit the step with other shares. If it was stable at one
// of them, this peer's part is in a report of theirs.
func (j *job) endAlone(ctx context.Context) error {
	if err := j.decisions.decideAlone(ctx, j.state.committed()); err != nil {
		return err
	}
	return j.finish(j.state.last.Epoch, func() (*Score, error) { return evaluation{j.cfg.Evaluate}.alone(ctx, j.group) })
}

// finish applies what is outstanding, and reports the end of the job if the evaluation of that
// succeeds. Otherwise the state is again what it was, as others may need a copy of it.
func (j *job) finish(epoch uint64, evaluate func() (*Score, error)) error {
	takeBack, err := j.state.complete()
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished { // also if the evaluation panics
			takeBack()
		}
	}()
	score, err := evaluate()
	if err != nil {
		return err
	}
	finished = true
	result := Result{Steps: j.state.committed(), Peers: j.state.last.Peers, Score: score, SHA256: sha256Of(j.state.params)}
	j.group.Emit(epoch, j.state.committed(), result.done())
	if j.cfg.Done != nil {
		j.cfg.Done(result)
	}
	return nil
}
