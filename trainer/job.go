package trainer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer/internal/audit"
	"github.com/elrun/elrun/trainer/internal/laps"
	"github.com/elrun/elrun/trainer/internal/level"
	"github.com/elrun/elrun/trainer/optim"
)

// job is this peer's part in a run: it goes from session to session and tries one step after the
// other. It owns the state and the open step. It is not safe for concurrent use: the goroutine of
// Run calls all methods.
type job struct {
	// group provides the sessions and receives the events.
	group  *elastic.Group
	cfg    Config
	plan   plan
	agreed []elastic.Setting // settings in which all members must agree
	guard  *guard
	state  *state
	step   *openStep
	// decisions carries out the decisions of the programs at points between steps.
	decisions decisions
	reporter  reporter // announces stable steps
	saver     *saver
	timings   stepTimings // measurements of the steps of this session
	// resyncs counts how often this peer has taken the state of the others after a divergence.
	resyncs  int
	leveling level.Level
	entered  bool // this peer has entered a session
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
	if err := model.check(); err != nil {
		return nil, err
	}
	cfg, err := model.updates(cfg)
	if err == nil {
		cfg, err = cfg.withDefaults()
	}
	if err != nil {
		return nil, err
	}
	if model.Whole && cfg.Gradients.Exact {
		return nil, errors.New("trainer: Model.Whole and Gradients.Exact are both set: the result would depend on the shares; leave one of them out")
	}
	j := &job{group: group, cfg: cfg, guard: &guard{ended: func() error { return nil }}}
	if j.step, err = newOpenStep(cfg, j.guard.of(model)); err != nil {
		return nil, err
	}
	j.plan = j.step.plan
	// Connect the parts, which have no references to each other: events go to the group, transitions
	// of the state to the job.
	emit := group.Sessions().Emit
	j.step.balance.emit, j.step.reducer.emit, j.step.reducer.poll = emit, emit, j.guard.poll
	j.state = j.step.state
	j.state.observer = j
	j.agreed = cfg.agreed(j.plan, j.step.reducer.layout)
	j.saver = newSaver(cfg, j.plan, j.agreed)
	j.saver.emit, j.saver.busy, j.saver.wishes = emit, group.Busy, group.Sessions()
	j.reporter = reporter{plan: j.plan, told: cfg.Hooks.OnStep, emit: emit, digest: func(int64) string { return digestText(j.state.dueDigest()) }}
	j.decisions = decisions{group: group, params: j.state.undo.params, of: j.plan.last}
	if j.timings.policy, err = loadbal.New(cfg.Balancing.Policy); err != nil {
		return nil, err
	}
	j.step.reopen()
	return j, nil
}

// run trains until the job is finished. It owns the prefetch goroutine, the guard and the
// checkpoint writer, and stops all of them before it returns.
func (j *job) run(ctx context.Context) (err error) {
	noMoreSaved := j.group.Sessions().Saves(j.cfg.Checkpoint.Dir)
	defer func() { noMoreSaved(err == nil && j.finished()) }()
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
	j.group.Sessions().Hold(j.replica(), slices.Concat(j.cfg.Settings, j.agreed, j.decisions.settings()))
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
		return fmt.Errorf("trainer: after step %d of %d: %w", j.state.committed(), j.plan.last(), err)
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
	if reason, large := j.leveling.Compare(j.state.replicated(), func(i int) string { return j.state.params[i].Name }, o.Step); reason != "" {
		if large {
			j.resyncs++
		}
		j.group.Sessions().Emit(o.Epoch, o.Step, event.Resync{Who: j.group.Self().ID.Short(), Reason: reason})
	}
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

// goOn reports whether a session that ended with err is followed by another session.
func goOn(err error) bool {
	return errors.Is(err, collective.ErrRevoked) || errors.Is(err, errNextSession)
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
	return j.state.committed() >= j.plan.last() || j.decisions.stopped
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
	return j.finish(j.state.last.Epoch, true, func() (*Score, error) { return evaluation{j.cfg.Evaluate}.alone(ctx, j.group) })
}

// finish applies a delayed gradient, evaluates, and reports the end of the job. If the evaluation
// fails or panics, the state is rolled back, because other peers may still need a copy of it. tells is set
// at the peer that logs the score.
func (j *job) finish(epoch uint64, tells bool, evaluate func() (*Score, error)) error {
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
	begun := time.Now()
	score, err := evaluate()
	if err != nil {
		return err
	}
	if tells && score != nil {
		j.group.Sessions().Emit(epoch, j.state.committed(), score.told("test", time.Since(begun)))
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

// errNextSession ends a session after a decision that all its members have made in the same way.
var errNextSession = errors.New("left for the next session")

// session trains in one session until the job is finished or the session ends. It is the main
// loop: a decision point if one is due, then one try at a step, again and again.
func (j *job) session(ctx context.Context, s *elastic.Session) error {
	// A panic of the model from now on revokes this session, so that the others do not wait.
	j.guard.revoke = s.Comm.Revoke
	j.step.reducer.enter(s)
	if err := j.enter(ctx, s); err != nil {
		return err
	}
	j.describe(s)
	j.step.clock.Enter(j.state.committed()+1, time.Now())
	defer func() { j.step.clock.Leave(time.Now()) }()
	for {
		if err := j.decisions.decide(ctx, s, j.state.committed()); err != nil {
			return err
		}
		if j.finished() {
			return j.end(ctx, s)
		}
		if err := j.tryStep(ctx, s); err != nil {
			return err
		}
	}
}

// enter gathers the parts of the open step that the ranks hold, and derives this peer's share. All
// ranks have committed the same step, because Sessions.Next brings members that are behind up to date.
func (j *job) enter(ctx context.Context, s *elastic.Session) error {
	mine := j.step.entry(s)
	words := mine.encode()
	gathered := make([]uint64, len(words)*len(s.View.Members))
	if err := collective.AllGather(ctx, s.Comm.With(collective.CallOptions{For: "entry"}), gathered, words); err != nil {
		return fmt.Errorf("enter epoch %d: %w", s.View.Epoch, err)
	}
	var all []resumeReport
	var states []fingerprint
	for w := range slices.Chunk(gathered, len(words)) {
		e := decodeResumeReport(w, len(mine.exponents), len(mine.links))
		all, states = append(all, e), append(states, e.state)
	}
	// First check that all states are equal, then settle a pending accusation, then assign the open
	// step.
	if err := j.agree(s, states); err != nil {
		return err
	}
	if err := j.resolve(ctx, s, all); err != nil {
		return err
	}
	if err := j.step.enter(s, all); err != nil {
		return fmt.Errorf("enter epoch %d: %w", s.View.Epoch, err)
	}
	return nil
}

// mostText bounds the text of a setting in the log, in bytes.
const mostText = 100

// describe logs what the job is, when this peer enters its first session and is the first peer of its
// launcher. The log of each launcher then says it.
func (j *job) describe(s *elastic.Session) {
	first := !j.entered
	j.entered = true
	if !first || !isReporter(s) {
		return
	}
	c := j.cfg
	about := event.Job{Settings: make(map[string]string), Samples: c.Samples, Steps: j.plan.last(), Passes: c.Passes, GlobalBatch: c.GlobalBatch,
		Microbatch: c.Microbatch, Exact: c.Gradients.Exact, Params: j.step.reducer.layout.size()}
	for _, setting := range slices.Concat(c.Settings, j.agreed) {
		text := cmp.Or(setting.Text, setting.Value)
		about.Settings[setting.Name] = strings.ToValidUTF8(text[:min(len(text), mostText)], "")
	}
	if firstView(s) {
		about.Resumed = j.state.committed()
	}
	j.group.Sessions().Emit(s.View.Epoch, j.state.committed(), about)
}

// tryStep makes one try at the open step in this session: it computes this peer's share, reduces
// the sums, and applies the result. It returns nil when the step is committed, and also when all
// ranks have to compute it again with another scale. If the session breaks, the contribution keeps
// its microbatches for the next session.
//
// Between hosts the next step begins while the reduction still runs (lookAhead). Then a second
// goroutine waits for the reduction, and finish, called once, commits the step.
func (j *job) tryStep(ctx context.Context, s *elastic.Session) error {
	t, err := j.step.contribute(ctx, s)
	if err != nil {
		return fmt.Errorf("step %d: %w", t.plan.step, err)
	}
	// The report is made before the next step can begin, which reuses the contribution.
	mine := j.step.report()
	if !j.step.reducer.between() {
		return j.commit(s, t, t.awaitReports(ctx, s, mine, &j.step.reducer))
	}
	var got exchanged
	var exchange sync.WaitGroup
	exchange.Go(func() { got = t.awaitReports(ctx, s, mine, &j.step.reducer) })
	defer exchange.Wait() // also if the model panics
	finish := sync.OnceValue(func() error {
		exchange.Wait()
		return j.commit(s, t, got)
	})
	// At a decision point the programs decide before the next step begins.
	// Microbatches that may have ended other peers wait for the launcher's answer (retries).
	if !j.decisions.due(t.plan.step) && !j.step.retries.suspects(t.plan.step+1) {
		j.step.lookAhead(ctx, s, t, finish)
	}
	return finish()
}

// commit commits a step if its commit record is complete. If the step is not committed, none of its
// updates remain in the parameters. An error after the commit ends the session or the job.
func (j *job) commit(s *elastic.Session, t *try, got exchanged) error {
	defer j.state.undo.rollback() // a no-op once the step is committed
	if got.err != nil {
		return got.err
	}
	now := time.Now()
	comm := now.Sub(t.computed)
	j.step.clock.Recorded(got.summed, got.complete, now)
	if err := j.learn(s, got.reports); err != nil {
		return err
	}
	j.step.clock.Lap(time.Now(), laps.Point)
	rate := j.state.rate(t.plan.step)
	committed, err := j.step.conclude(s, t.plan, got.reports)
	if err != nil {
		return fmt.Errorf("step %d: %w", t.plan.step, err)
	}
	now = time.Now()
	if !committed {
		j.step.clock.Fail(now)
		return nil
	}
	w := &j.step.work
	// The time for the early call of the next step counts for that step, not for this one.
	w.comm, w.try = comm-t.following, now.Sub(t.begun)+t.claimed-t.following
	last, late := latest(got.reports, s.Rank)
	w.times, w.rate = j.step.clock.Close(now, w.compute, late), rate
	if t, ok := j.state.updater.(optim.Teller); ok {
		w.rate, w.metrics = t.Figures()
	}
	w.began = now.Add(-w.times.Total())
	if last != s.Rank {
		w.waitFor = s.View.Members[last].ID
	}
	j.timings.microbatches = j.plan.fullMicrobatches(j.state.committed() + 1)
	j.timings.publish(s.View, got.reports, got.complete.Sub(got.summed), *w, j.step.balance.costs(), j.step.reducer.bytes())
	if err := j.group.Sessions().Committed(j.state.committed()); err != nil {
		return fmt.Errorf("after the commit of step %d: %w", j.state.committed(), err)
	}
	if err := j.accused(s, got.reports); err != nil {
		return err
	}
	// There is a later view. All ranks leave the session together, at this step boundary.
	if anyStale(got.reports) {
		return errNextSession
	}
	return nil
}

// latest returns the rank that has computed for the longest time since the commit record before, and how
// much longer than this rank it has computed.
func latest(reports []rankReport, self int) (rank int, late time.Duration) {
	rank = self
	for r, o := range reports {
		if o.busy > reports[rank].busy {
			rank = r
		}
	}
	// The words come from other members and may have any value.
	more := min(reports[rank].busy-reports[self].busy, int64(math.MaxInt64/time.Microsecond))
	return rank, time.Duration(more) * time.Microsecond
}

// learn evaluates a complete commit record: it checks that all ranks have the same state, passes
// on audit fingerprints and link measurements, and reports the previously committed step, which
// is stable now.
func (j *job) learn(s *elastic.Session, reports []rankReport) error {
	j.step.reducer.learn(reports)
	var states []fingerprint
	for _, other := range reports {
		states = append(states, fingerprint{other.committed, other.digest})
	}
	if err := j.agree(s, states); err != nil {
		return fmt.Errorf("after step %d: %w", j.state.committed(), err)
	}
	if found := j.step.audits.learn(s, j.state.committed(), reports); found != nil {
		j.group.Sessions().Emit(s.View.Epoch, j.state.committed(), found)
	}
	j.stable(s.View, s.Rank)
	return nil
}

// stable records that all members of v, in which this peer has the given rank, have committed the
// last step.
func (j *job) stable(v elastic.View, rank int) {
	last := j.state.last
	if last.Step > 0 && j.reporter.stable(last, v, v.Members[rank].ID, j.step.work, j.finished()) {
		j.group.Sessions().Stable(last.Step)
		j.saver.stable(j.state, rank == 0, j.finished())
	}
}

// mostResyncs is the number of times that a peer may be re-synced. A machine that diverges more
// often computes wrong results, and its peer leaves the job.
const mostResyncs = 2

// agree checks that all ranks of a session have committed the same step with the same parameters.
// If some differ, all ranks leave the session, and the differing ranks get the state of the
// others in the next session.
func (j *job) agree(s *elastic.Session, states []fingerprint) error {
	wrong, right := differing(states)
	if wrong == nil {
		return nil
	}
	var list []string
	for _, rank := range wrong {
		list = append(list, fmt.Sprintf("%s has %v", peerName(s)(rank), states[rank]))
	}
	err := fmt.Errorf("%w: %s; the others have %v", ErrDiverged, strings.Join(list, ", "), right)
	s.Comm.Revoke(err)
	// Every rank finds the same difference and leaves the session. Only the wrong ranks drop their
	// state.
	if !slices.Contains(wrong, s.Rank) {
		return fmt.Errorf("%w: %w", errNextSession, err)
	}
	if j.resyncs == mostResyncs {
		j.group.Leave()
		return fmt.Errorf("took over the state of the others %d times already: check the memory of this host: %w", mostResyncs, err)
	}
	if j.state.inexact {
		j.leveling.Keep(j.state.replicated())
	} else {
		j.resyncs++
		j.group.Sessions().Emit(s.View.Epoch, j.state.committed(), event.Resync{Who: s.View.Members[s.Rank].ID.Short(),
			Reason: fmt.Sprintf("has %v, the others have %v", states[s.Rank], right)})
		j.cfg.Hooks.log("this peer's parameters differ from the others', so it copies theirs: %v", err)
	}
	j.state.invalidate() // also drops the contribution that was computed from the bad state
	return fmt.Errorf("%w: %w", errNextSession, err)
}

// differing returns the state that most ranks have, and the ranks with another state. Of equally
// common states, the state of the lowest rank counts as right, so that all ranks agree.
func differing(states []fingerprint) (wrong []int, right fingerprint) {
	count := make(map[fingerprint]int)
	for _, s := range states {
		count[s]++
	}
	right = states[0]
	for _, s := range states { // in rank order, so that ties are resolved alike at all ranks
		if count[s] > count[right] {
			right = s
		}
	}
	for rank, s := range states {
		if s != right {
			wrong = append(wrong, rank)
		}
	}
	return wrong, right
}

// end finishes a job in a session whose members have all committed the last step. If the session
// fails, the next session repeats the end.
func (j *job) end(ctx context.Context, s *elastic.Session) error {
	// A commit record without a step confirms to all ranks that all have committed the last step.
	// No rank leaves before that confirmation, because a member, or a newcomer of a later view, may
	// still need a copy of the state.
	mine := idleReport(j.state)
	mine.digest = j.state.digest() // all end with the same parameters
	j.step.audits.tell(&mine)
	reports, err := j.step.reducer.exchangeReports(ctx, s, mine)
	if err == nil {
		err = j.learn(s, reports)
	}
	if err == nil {
		err = j.accused(s, reports)
	}
	if err != nil {
		return err
	}
	if anyStale(reports) {
		return errNextSession
	}
	return j.finish(s.View.Epoch, s.Rank == 0, func() (*Score, error) { return evaluation{j.cfg.Evaluate}.together(ctx, s) })
}

// ErrAudit reports that this peer was put out of the group: most members have computed another
// result than this peer, for its own part of a step or for a part that it audited. Its machine has
// bad memory, or it runs another program.
var ErrAudit = errors.New("put out by an audit")

// errAccused ends a session in which a member accuses another. The vote takes place at the entry of
// the next session, because no call of a model is under way there.
var errAccused = errors.New("a member accuses another in the audit of a step")

// accused ends the session if a rank accuses another in a commit record.
func (j *job) accused(s *elastic.Session, reports []rankReport) error {
	if !slices.ContainsFunc(reports, func(o rankReport) bool { return o.accuses }) {
		return nil
	}
	s.Comm.Revoke(errAccused)
	return fmt.Errorf("%w: %w", errNextSession, errAccused)
}

// resolve decides an accusation with which a rank has entered the session: all ranks vote, and
// audit.Judge names the ranks that are wrong. These ranks are put out of the group, and the other
// ranks go on to the next session.
func (j *job) resolve(ctx context.Context, s *elastic.Session, all []resumeReport) error {
	a := j.step.audits
	if a == nil {
		return nil
	}
	a.enter()
	c, accused, step := claims(s.View, all)
	if accused < 0 {
		a.accusing = accusation{} // the accused member is gone, so there is nobody to judge
		return nil
	}
	idle := s.Busy("auditing")
	mine := a.vote(step, s.View.Members[accused].ID, j.step.together(), s.Comm.Err)
	idle()
	words := make([]uint64, 2*len(s.View.Members))
	send := []uint64{uint64(mine.Told), uint64(mine.Computed)}
	if err := collective.AllGather(ctx, s.Comm.With(collective.CallOptions{For: "audit"}), words, send); err != nil {
		return fmt.Errorf("audit of step %d: %w", step, err)
	}
	// The words come from other members and may have any value.
	var votes []audit.Vote
	for w := range slices.Chunk(words, 2) {
		votes = append(votes, audit.Vote{Told: min(audit.Print(w[0]), audit.None), Computed: min(audit.Print(w[1]), audit.None)})
	}
	a.accusing = accusation{}
	j.awaitOthers(ctx, s)
	return j.execute(ctx, s, step, c, audit.Judge(c, votes))
}

// kickPatience bounds the wait for a view without the ranks that were put out.
const kickPatience = 5 * time.Second

// kick puts ranks of a view out for good. All members kick the same ranks.
func (j *job) kick(ctx context.Context, v elastic.View, ranks []int) {
	ctx, cancel := context.WithTimeout(ctx, kickPatience)
	defer cancel()
	for _, rank := range ranks {
		if err := j.group.Admin().Kick(ctx, v.Members[rank].ID); err != nil {
			j.cfg.Hooks.log("peer %s could not be put out of the group: %v", v.Members[rank].ID.Short(), err)
		}
	}
}

// decisionPatience bounds the wait until the other members have the decision.
const decisionPatience = 2 * time.Second

// awaitOthers waits until all members have the decision. If a member were put out before it has the
// decision, it would not learn the reason, and would join again under another ID.
func (j *job) awaitOthers(ctx context.Context, s *elastic.Session) {
	ctx, cancel := context.WithTimeout(ctx, decisionPatience)
	defer cancel()
	// After an error some member may lack the decision; this peer goes on all the same.
	_ = collective.Barrier(ctx, s.Comm.With(collective.CallOptions{For: "audit"}))
}

// claims returns the accusation of the lowest rank that accuses another member of the view; accused
// is negative if no rank does.
func claims(v elastic.View, all []resumeReport) (c audit.Claims, accused int, step int64) {
	for rank, e := range all {
		if e.accusing.step == 0 {
			continue
		}
		accused = slices.IndexFunc(v.Members, func(m elastic.Member) bool { return nameOf(m.ID) == e.accusing.accused })
		if accused >= 0 && accused != rank {
			return audit.Claims{Accused: accused, Auditor: rank, Computed: e.accusing.computed}, accused, e.accusing.step
		}
	}
	return audit.Claims{}, -1, 0
}

// execute carries out the decision about a step. Without a majority nobody is put out, and execute
// only logs the accused and the auditor: one of the two is wrong.
func (j *job) execute(ctx context.Context, s *elastic.Session, step int64, c audit.Claims, v audit.Verdict) error {
	told, wrong := event.Audit{Out: len(v.Wrong) > 0, For: v.For, Of: v.Of}, v.Wrong
	if !told.Out {
		wrong = []int{c.Accused, c.Auditor}
		slices.Sort(wrong)
	}
	for _, rank := range wrong {
		told.Who = append(told.Who, s.View.Members[rank].ID.Short())
	}
	j.group.Sessions().Emit(s.View.Epoch, step, told)
	if !told.Out {
		return nil
	}
	err := fmt.Errorf("audit of step %d: the results of %d of %d members differ from the result of %s: %w", step, v.For, v.Of, peerName(s)(wrong[0]), ErrAudit)
	if slices.Contains(wrong, s.Rank) {
		s.Comm.Revoke(err)
		j.group.Leave()
		return err
	}
	s.Comm.Revoke(err)
	if all := len(s.View.Members); 2*(all-len(wrong)) > all { // a kick needs a majority; without it the members in wrong leave by themselves
		j.kick(ctx, s.View, wrong)
	}
	return fmt.Errorf("%w: %w", errNextSession, err)
}
