package timeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
)

// The bounds of lists. The oldest entries are dropped.
const (
	maxNotes       = 100
	maxEvals       = 512
	maxCheckpoints = 64
	maxStrings     = 1 << 12 // bytes of a text that is remembered
	maxSettings    = 256
)

// Job is the model of one job. The zero value is not ready; use New. A Job is not safe for concurrent use.
type Job struct {
	seq         uint64
	about       event.Job
	begin       instant // time of the first event
	latest      instant
	pace        Pace
	peers       peers
	views       views
	steps       steps
	evals       []Eval
	checkpoints []Saved
	saved       int
	savedTime   time.Duration
	notes       []Message
	stall       *Stall
	quorum      *Quorum
	done        *event.Done
	counts      Counts
	audited     int64 // step of the last audit
	order       []int // ranks in the order of the ring
	batch       int   // samples of a full step, once it has grown
	norms       norms
	lacks       Lacks
}

// New returns the model of a job of which nothing is known.
func New() *Job {
	return &Job{peers: peers{ids: make(map[string]*identity)}}
}

// Add adds an event of any elrun of the job. Events may come in any order that keeps those of one peer in
// theirs; Read puts the lines of several logs in order. The Job keeps no slice or map of the event.
// An event that makes no sense has no effect; Add never fails.
func (j *Job) Add(e event.Event) {
	if s, ok := e.Body.(event.Step); ok {
		j.step(&e, &s)
		return
	}
	j.event(&e)
}

// entry adds a line of a log.
func (j *Job) entry(e *entry) {
	if e.isStep {
		j.step(&e.event, &e.step)
		return
	}
	j.event(&e.event)
}

// event adds an event that is no step.
func (j *Job) event(e *event.Event) {
	at := j.sees(e)
	if b, ok := e.Body.(event.Shares); ok {
		b.New = slices.Clone(b.New[:min(len(b.New), maxMembers)])
		e.Body = b
	}
	j.pace.Observe(*e, at.time())
	switch b := e.Body.(type) {
	case event.Job:
		j.describe(b)
	case event.Member:
		j.peers.describe(b, e.Peer == b.Who, at)
	case event.Note:
		j.notes = appendBounded(j.notes, Message{at.time(), clip(b.Text)}, maxNotes)
	case event.Dropped:
		j.lacks.Dropped += int64(max(0, b.Events))
	case event.Exit:
		j.exited(e, b, at)
	case event.Other:
		j.lacks.Unknown++
	case event.Restart, event.Notice, event.Decided, event.Clock, nil:
	default:
		if e.Peer != "" {
			j.reported(j.peers.of(e.Peer, e.Index).row, e, at)
		}
	}
}

// norms has the latest measurements of the gradients; 0 if unknown.
type norms struct {
	grad, noise, rate float64
}

// sees notes the time of an event, and returns it. An event without a time has the latest one.
func (j *Job) sees(e *event.Event) instant {
	j.seq++
	at := cmp.Or(instantOf(e.Time), j.latest)
	if j.begin == 0 {
		j.begin = at
	}
	j.latest = max(j.latest, at)
	return at
}

// clip bounds a text.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxStrings)], "")
}

// appendBounded appends to a list of at most most elements.
func appendBounded[T any](list []T, x T, most int) []T {
	if len(list) >= most {
		list = slices.Delete(list, 0, len(list)-most+1)
	}
	return append(list, x)
}

// describe takes over what an event says of the job. Members and launchers know different parts.
func (j *Job) describe(b event.Job) {
	a := &j.about
	a.Job, a.Elrun, a.Program = cmp.Or(a.Job, clip(b.Job)), cmp.Or(a.Elrun, clip(b.Elrun)), cmp.Or(a.Program, clip(b.Program))
	a.Samples, a.Steps, a.Passes = cmp.Or(b.Samples, a.Samples), cmp.Or(b.Steps, a.Steps), cmp.Or(b.Passes, a.Passes)
	a.GlobalBatch, a.Microbatch = cmp.Or(b.GlobalBatch, a.GlobalBatch), cmp.Or(b.Microbatch, a.Microbatch)
	a.Log = cmp.Or(a.Log, clip(b.Log))
	a.Params, a.Resumed, a.Exact = cmp.Or(b.Params, a.Params), cmp.Or(b.Resumed, a.Resumed), a.Exact || b.Exact
	if len(b.Settings) <= maxSettings && len(b.Settings) > len(a.Settings) {
		a.Settings = maps.Clone(b.Settings)
	}
	if len(a.Args) == 0 && len(b.Args) <= maxStrings {
		a.Args = slices.Clone(b.Args)
	}
}

// reported adds an event that a peer reports.
func (j *Job) reported(r *row, e *event.Event, at instant) {
	r.signs(at)
	switch b := e.Body.(type) {
	case event.View:
		j.entered(r, e.Epoch, b, at)
	case event.Join:
		j.joined(r, b, at)
	case event.Parked:
		if r.is(b.Who) && !r.ended() {
			r.begins(holdParked, "", at)
			r.state = StateParked
		}
	case event.Lost:
		j.lost(e.Epoch, b, at)
	case event.Leave:
		j.left(r, b, at)
	case event.Fenced:
		if r.is(b.Who) {
			r.ends(at)
			r.catching, r.rank, r.state = true, -1, StateJoining
		}
	case event.Resync:
		if r.is(b.Who) && !b.Began {
			r.copying = plus(r.copying, duration(b.MS))
		}
	case event.Quorum:
		j.counted(r, b, at)
	case event.Stall:
		j.stalled(r, b, at)
	case event.Eval:
		j.evaluated(e.Step, b, at)
	case event.Saving:
		r.saved = e.Step
	case event.Checkpoint:
		j.checkpointed(e.Step, b, at)
	case event.Usage:
		r.use(b, at)
	case event.Path:
		r.reach(b)
	case event.Link:
		if r.links == nil || len(r.links) >= maxMembers {
			r.links = make(map[string]float64)
		}
		r.links[clip(b.From)] = max(0, finite(b.MBs))
	case event.Order:
		j.order = slices.Clone(b.Order[:min(len(b.Order), maxMembers)])
	case event.Growth:
		j.batch = b.New
	case event.Audit:
		if e.Step != j.audited {
			j.audited = e.Step
			j.counts.audit(b)
		}
	case event.Done:
		b.Accuracy, b.Loss = cloned(b.Accuracy), cloned(b.Loss)
		j.done = &b
		j.charge(r.finish(at, StateDone, j.evaluations(r.lastStep)))
	}
}

// cloned copies a number that may be unknown. What JSON cannot have is unknown, too.
func cloned(x *float64) *float64 {
	if x == nil || finite(*x) != *x {
		return nil
	}
	y := *x
	return &y
}

// entered notes that a peer has entered a view.
func (j *Job) entered(r *row, epoch uint64, b event.View, at instant) {
	if r.open.kind != holdStall {
		r.ends(at) // it was parked, or without a quorum
	}
	if !r.member {
		r.member, r.founder = true, b.Reason == "start"
	}
	begins := b.Reason == "start" || b.Reason == "join"
	if r.state != StateDone || begins { // the others may leave after it is done
		r.catching = r.catching || r.ended()
		r.state = StateRunning
	}
	if !j.views.enter(epoch, at, b) {
		return
	}
	count(&j.counts.Views, clip(b.Reason))
	j.unstall(0)
	j.quorum = nil
	if b.Reason == "start" && j.pace.Step > 0 { // a new generation, whose steps may begin again
		j.steps.flush()
		j.pace = Pace{}
	}
	for _, other := range j.peers.rows {
		other.rank = -1
	}
	for rank, id := range b.Members[:min(len(b.Members), maxMembers)] {
		other := j.peers.of(id, -1).row
		other.rank, other.listed = rank, true
	}
}

// joined notes that a newcomer has the state of the job.
func (j *Job) joined(r *row, b event.Join, at instant) {
	if r.is(b.Who) && r.open.kind == holdParked {
		r.ends(at)
		r.state = StateRunning
	}
}

// lost notes that a member was lost.
func (j *Job) lost(epoch uint64, b event.Lost, at instant) {
	j.views.lose(epoch, b)
	r := j.peers.of(b.Who, -1).row
	switch {
	case r.state != StateLost:
		r.cause = b.Cause
		count(&j.counts.Lost, clip(b.Cause))
	case r.cause == "" && b.Cause != "": // the first to report it did not know the cause
		r.cause = b.Cause
		if j.counts.Lost[""]--; j.counts.Lost[""] <= 0 {
			delete(j.counts.Lost, "")
		}
		count(&j.counts.Lost, clip(b.Cause))
	}
	r.rank = -1
	if r.state == StateExited {
		r.state = StateLost
	}
	if !r.ended() {
		j.charge(r.finish(max(r.sign, r.cursor), StateLost, 0))
	}
}

// left notes that a peer has left by agreement. The peer itself knows when.
func (j *Job) left(r *row, b event.Leave, at instant) {
	gone := j.peers.of(b.Who, -1).row
	gone.rank, gone.reason = -1, cmp.Or(clip(b.Reason), gone.reason)
	switch {
	case gone.state == StateDone:
	case gone == r:
		j.charge(r.finish(at, StateLeft, 0))
	case !gone.ended():
		j.charge(gone.finish(max(gone.sign, gone.cursor), StateLeft, 0))
	}
}

// exited notes the end of a process.
func (j *Job) exited(e *event.Event, b event.Exit, at instant) {
	r := j.named(e, at)
	b.Says, b.RanS, b.CPUS = clip(b.Says), finite(b.RanS), finite(b.CPUS)
	r.exit = &b
	switch r.state {
	case StateDone, StateLeft:
	case StateLost:
		j.charge(r.finish(at, StateLost, 0))
	default:
		if r.begin == 0 && at != 0 && b.RanS > 0 {
			r.starts(at.plus(-duration(b.RanS * 1000)))
		}
		j.charge(r.finish(at, StateExited, 0))
	}
}

// named returns the process of the header of an event. A process that ends before its launcher knows its ID
// has none.
func (j *Job) named(e *event.Event, at instant) *row {
	if e.Peer != "" {
		return j.peers.of(e.Peer, e.Index).row
	}
	r := j.peers.add(e.Index)
	r.sign = at
	return r
}

// counted notes whether a peer has a quorum.
func (j *Job) counted(r *row, b event.Quorum, at instant) {
	j.quorum = &Quorum{at.time(), b.State, b.Present, b.Needed}
	if b.State == "back" {
		if r.open.kind == holdQuorum {
			r.ends(at)
		}
		j.quorum = nil
		return
	}
	r.begins(holdQuorum, "", at)
}

// stalled notes that a peer waits for others for unusually long, or does not any more.
func (j *Job) stalled(r *row, b event.Stall, at instant) {
	culprit := clip(b.Culprit)
	if !b.Over {
		r.begins(holdStall, culprit, at)
		if j.stall == nil {
			count(&j.counts.Stalls, clip(b.Phase))
		}
		if j.stall == nil || j.stall.SinceMS <= finiteMS(b.SinceMS) || j.stall.Culprit != culprit {
			j.stall = &Stall{at.time(), culprit, clip(b.Phase), clip(b.What), finiteMS(b.SinceMS)}
		}
		return
	}
	if r.open.from == 0 && at != 0 { // the event of its begin is lost
		r.open = hold{at.plus(-duration(b.SinceMS)), at, holdStall, culprit}
	}
	if r.open.kind == holdStall {
		r.open.culprit = cmp.Or(culprit, r.open.culprit)
		r.ends(at)
	}
	j.unstall(finiteMS(b.SinceMS))
}

// unstall notes that a stall is over, and for how long it has lasted at least.
func (j *Job) unstall(ms float64) {
	if j.stall != nil {
		j.counts.StallMS += max(ms, j.stall.SinceMS)
		j.stall = nil
	}
}

// evaluated notes an evaluation.
func (j *Job) evaluated(step int64, b event.Eval, at instant) {
	e := Eval{at.time(), step, clip(b.Set), b.Samples, cloned(b.Accuracy), cloned(b.Loss), finiteMS(b.MS)}
	j.evals = appendBounded(j.evals, e, maxEvals)
	if j.steps.newest > 0 && step > j.steps.newest+openSteps {
		return
	}
	if o := j.steps.at(step); o != nil {
		o.evaluated = plus(o.evaluated, duration(b.MS))
	}
}

// evaluations returns the time of the evaluations after a step.
func (j *Job) evaluations(step int64) time.Duration {
	if o := j.steps.at(step); o != nil {
		return o.evaluated
	}
	return 0
}

// checkpointed notes a checkpoint.
func (j *Job) checkpointed(step int64, b event.Checkpoint, at instant) {
	j.saved++
	j.savedTime = plus(j.savedTime, duration(b.MS))
	j.checkpoints = appendBounded(j.checkpoints, Saved{at.time(), step, clip(b.Path), finiteMS(b.MS)}, maxCheckpoints)
}

// bounded bounds a number of samples or microbatches.
func bounded(n int) int { return min(max(0, n), 1<<40) }

// finiteMS bounds a duration of an event.
func finiteMS(ms float64) float64 { return milliseconds(duration(ms)) }

// charge charges waits to those that caused them.
func (j *Job) charge(charges []charge) { j.peers.charge(charges) }

// step adds a step event of a peer.
func (j *Job) step(e *event.Event, b *event.Step) {
	at := j.sees(e)
	if e.Peer == "" || e.Step <= 0 || e.Step > maxStep {
		j.lacks.Nameless++
		return
	}
	i := j.peers.of(e.Peer, e.Index)
	if e.Step <= i.step {
		j.lacks.Repeated++
		return
	}
	skipped := i.step > 0 && e.Step > i.step+1
	i.step = e.Step
	r := i.row
	r.heard, r.sign = true, max(r.sign, at)
	if r.ended() || r.state == StateParked {
		r.state = StateRunning
	}
	b.Loss, b.Samples, b.ShareSamples = finite(b.Loss), bounded(b.Samples), bounded(b.ShareSamples)
	if e.Step > j.pace.Step {
		j.counts.Steps++
		j.counts.Samples += int64(b.Samples)
		j.norms = norms{cmp.Or(finite(b.GradNorm), j.norms.grad), cmp.Or(finite(b.NoiseScale), j.norms.noise), cmp.Or(finite(b.LR), j.norms.rate)}
		j.pace.advance(e.Step, *b, at.time())
		j.unstall(0)
	}
	spent := j.account(r, e, b, at, skipped)
	r.keep(e.Step, b)
	o := j.steps.at(e.Step)
	if o == nil {
		j.lacks.Late++
		return
	}
	o.report(i, b, at, spent)
	for _, c := range b.OfLost[:min(len(b.OfLost), maxMembers)] {
		if c.Step != e.Step && c.Step != e.Step-1 {
			continue
		}
		if lost := j.steps.at(c.Step); lost != nil {
			lost.learned = true
			lost.contribute(j.peers.of(c.Peer, -1), c.Microbatches)
		}
	}
}

// account accounts the time of a step and the gap before it. It returns how.
func (j *Job) account(r *row, e *event.Event, b *event.Step, at instant, skipped bool) Uses {
	if b.Recomputed = bounded(b.Recomputed); b.Recomputed > 0 {
		if w := j.views.at(e.Epoch); w != nil {
			w.Recomputed += b.Recomputed
		}
	}
	s := stride{epoch: e.Epoch, began: instantOf(b.Began), length: duration(b.StepMS), skipped: skipped}
	if b.WaitFor != r.id() {
		s.waitFor = b.WaitFor
	}
	if s.began == 0 && at != 0 {
		s.began = at.plus(-s.length)
	}
	if s.length == 0 || s.began == 0 {
		r.starts(at)
		return Uses{} // the next gap covers the step
	}
	s.parts = r.parts(e.Step, b, j.evaluations(e.Step-1))
	if r.begin == 0 || s.began < r.begin && r.cursor == r.begin { // the log has not the begin of the process
		r.begin, r.cursor = s.began, s.began
	}
	changed := r.stepped && r.epoch != e.Epoch
	if changed { // the change broke the attempts
		s.parts.move(Recompute, Change, duration(b.LostMS))
	}
	before := r.epoch
	gap, spent, charges := r.step(s)
	j.charge(charges)
	spent.add(gap)
	if changed {
		j.views.cost(e.Epoch, spent[Change]+gap[CatchUp])
		if lost := j.views.between(before, e.Epoch); len(lost) > 0 {
			j.charge([]charge{{strings.Join(lost, ","), waitAbsent, spent[Change]}})
		}
	}
	return spent
}
