package trainer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/kernel"
)

// job is this peer's part in a run: it goes from session to session and tries one step after the
// other. It owns the state and the open step. It is not safe for concurrent use: the goroutine of
// Run calls all methods.
type job struct {
	// group provides the sessions and receives the events.
	group *elastic.Group
	cfg   Config
	plan  plan
	held  []elastic.Setting // settings in which all members must agree
	guard *guard
	state *state
	step  *openStep
	// decisions carries out the decisions of the programs at points between steps.
	decisions decisions
	reporter  reporter // announces stable steps
	saver     *saver
	timings   stepTimings // measurements of the steps of this session
	// resyncs counts how often this peer has taken the state of the others after a divergence.
	resyncs int
}

// Run trains model on all peers of group until the training is complete according to cfg, and
// then returns nil. All peers call Run with equal configurations and models; a peer that joins
// later gets the state of the others. Peers may come, leave and die meanwhile. After an error the
// parameters are the parameters of the last committed step, except after elastic.ErrFenced, which
// leaves them undefined.
//
// Some errors are no mistake of the program: elastic.ErrLeft if this peer has left as asked, before
// the last step, elastic.ErrFinished if it came after the job had finished, elastic.ErrQuorum if
// too few peers were left for too long, and other errors that wrap elastic.ErrNoView. A program
// that ends with any status after the first two is no failure for package launch. ErrNotFinite is
// returned at every peer. Once this peer has committed the last step, a failure of the group is no
// longer an error, unless it is a mistake of the program (collective.ErrMistake).
func Run(ctx context.Context, group *elastic.Group, model Model, cfg Config) error {
	return New(group, model, cfg).run(ctx, func(*job) {})
}

// newJob validates the user's arguments and allocates all the memory that steps need.
func newJob(group *elastic.Group, model Model, cfg Config) (*job, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := model.check(); err != nil {
		return nil, err
	}
	if model.Whole && cfg.Gradients.Exact {
		return nil, errors.New("trainer: Model.Whole and Gradients.Exact are both set: the result would depend on the shares; leave one of them out")
	}
	j := &job{group: group, cfg: cfg, plan: newPlan(cfg), guard: newGuard()}
	if j.step, err = newOpenStep(cfg, j.guard.of(model)); err != nil {
		return nil, err
	}
	// Connect the parts, which have no references to each other: events go to the group, transitions
	// of the state to the job.
	emit := group.Sessions().Emit
	j.step.balance.emit, j.step.reducer.emit, j.step.reducer.poll = emit, emit, j.guard.poll
	j.state = j.step.state
	j.state.observer = j
	j.held = settingsOf(cfg, j.plan, j.step.reducer.layout)
	j.saver = newSaver(cfg, j.plan, j.held)
	j.saver.emit, j.saver.busy = emit, group.Busy
	j.reporter = reporter{plan: j.plan, told: cfg.Hooks.OnStep, emit: emit, digest: func(int64) string { return digestText(j.state.dueDigest()) }}
	j.decisions = decisions{group: group, params: j.state.pipeline.params, of: j.plan.steps}
	j.timings.policy, j.timings.microbatches = cfg.Balancing.Policy, j.plan.mostMicrobatches()
	j.step.reopen()
	return j, nil
}

// run trains until the job is finished. It owns the prefetch goroutine, the guard and the
// checkpoint writer, and stops all of them before it returns.
func (j *job) run(ctx context.Context) (err error) {
	defer j.saver.close()
	defer j.step.ahead.start(ctx)()
	if err := j.guard.start(func() error { return context.Cause(ctx) }); err != nil {
		return err
	}
	defer j.guard.stop()
	if err := j.saver.resume(j.state, j.group); err != nil {
		return err
	}
	// From here on elastic may read and replace the state, on the goroutine of Run.
	j.group.Sessions().Hold(j.replica(), slices.Concat(j.cfg.Settings, j.held, j.decisions.settings()))
	j.group.Sessions().OnQuorumLost(func() { j.saver.now(j.state) })
	defer func() { _ = j.step.reducer.leave() }() // an error is harmless: the memory ends with the process
	err = j.sessions(ctx)
	if errors.Is(err, elastic.ErrLast) { // all peers leave at once, for example shortly before a time limit
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

// replica is the interface between a job and package elastic, which copies the state among the
// members, asks whether to admit a candidate, and runs the trial before a join.
type replica struct {
	*state
	admitter
	trial
}

// replica returns the part of the job that elastic sees.
func (j *job) replica() replica {
	always := j.cfg.Balancing.Admit == AdmitAlways
	return replica{j.state, admitter{always, j.cfg.Microbatch, &j.timings.model}, trial{j.step, always}}
}

// superseded reports this peer's part of its last step before a copy from another member moves this
// peer to a later step. A peer that has another identity than the one under which it contributed
// reports nothing: others have computed and reported this part. A copy of a whole state also
// discards the error feedback of compression.
func (j *job) superseded(by int64, whole bool) {
	last, owner := j.state.last, j.step.own.owner
	if _, took := last.share(owner); took && !j.state.void && j.group.Self().ID == owner {
		j.reporter.superseded(last, owner, j.step.work, by)
	}
	if whole {
		j.step.reducer.giveUp("taking the state of others", j.state.grads.applied.views)
	}
}

// advanced opens the step after o; it implements observer.
func (j *job) advanced(was, o outcome) {
	j.reporter.advance(was, o)
	j.step.advance(o)
}

// sessions trains in one session after the other until the job is finished. After a session that
// was revoked or left, Sessions.Next returns the next session, or the reason why none follows. The
// contribution to the open step is kept between sessions.
func (j *job) sessions(ctx context.Context) error {
	for epoch := uint64(0); ; {
		s, err := j.group.Sessions().Next(ctx, epoch)
		// All members have left. Nobody else can report the last step, or commit it in another way.
		if errors.Is(err, elastic.ErrLast) && !j.state.void {
			j.stable(elastic.View{Members: []elastic.Member{j.group.Self()}}, 0)
		}
		// This peer has committed the last step, so it is no failure that the others have left. A
		// mistake of the program is one.
		if err != nil && !errors.Is(err, collective.ErrMistake) && j.finished() && !j.state.void && ctx.Err() == nil {
			return j.endAlone(ctx)
		}
		if err != nil {
			return err
		}
		epoch = s.View.Epoch
		if err := j.saver.enter(j.group.Sessions().Run(), s, j.state.committed()); err != nil {
			return j.refuse(ctx, s, err)
		}
		if err = j.session(ctx, s); err == nil || !goOn(err) {
			return err
		}
	}
}

// refuse ends the run because the folder of its checkpoints belongs to another run. At the
// beginning of a job it ends at all peers: nothing is lost yet, and the user has to decide. From a
// running job only this peer leaves, which has joined.
func (j *job) refuse(ctx context.Context, s *elastic.Session, err error) error {
	if !firstView(s) {
		j.group.Leave()
		return err
	}
	// Next fails when the others know of the mistake. If the session broke for another reason before,
	// the next session ends by the mistake.
	for again := error(nil); again == nil; s, again = j.group.Sessions().Next(ctx, s.View.Epoch) {
		s.Comm.Revoke(&collective.AbortError{Rank: s.Rank, Cause: err.Error(), Mistake: true})
	}
	return err
}

// firstView reports whether a session is the first one of a group, which begins with the state that
// its members hold.
func firstView(s *elastic.Session) bool { return s.View.Parent == [32]byte{} }

// finished reports whether no further step follows.
func (j *job) finished() bool {
	return j.state.committed() >= j.plan.steps || j.decisions.stopped
}

// endAlone ends a job at a peer that has committed the last step and gets no further session,
// which is no error of the job.
//
// The step is not reported unless it was already stable, or this peer was the last member. If the
// other peers were cut off rather than killed, they may lack this peer's part of the commit record,
// and commit the step with other shares. If the step was stable at another peer, the report of that
// peer contains this peer's part.
func (j *job) endAlone(ctx context.Context) error {
	if err := j.decisions.decideAlone(ctx, j.state.committed()); err != nil {
		return err
	}
	return j.finish(j.state.last.Epoch, func() (*Score, error) { return evaluation{j.cfg.Evaluate}.alone(ctx, j.group) })
}

// finish applies a delayed gradient, evaluates, and reports the end of the job. If the evaluation
// fails or panics, the state is rolled back, because other peers may still need a copy of it.
func (j *job) finish(epoch uint64, evaluate func() (*Score, error)) error {
	takeBack, err := j.state.complete()
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished { // also after a panic of the evaluation
			takeBack()
		}
	}()
	score, err := evaluate()
	if err != nil {
		return err
	}
	finished = true
	result := Result{Steps: j.state.committed(), Peers: j.state.last.Peers, Score: score, SHA256: sha256Of(j.state.params)}
	j.group.Sessions().Emit(epoch, j.state.committed(), result.done())
	if j.cfg.Hooks.Done != nil {
		j.cfg.Hooks.Done(result)
	}
	return nil
}

// digestText formats a digest in hexadecimal. It returns "" for 0, which means that no digest is
// due.
func digestText(digest uint64) string {
	if digest == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", digest)
}

// sha256Of returns the SHA-256 of the parameters in declaration order, little-endian, in
// hexadecimal.
func sha256Of(params []Param) string {
	h := sha256.New()
	for _, p := range params {
		h.Write(kernel.Bytes(p.Data)) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}
