package timeline

import (
	"maps"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
)

// The states of a peer. Those that package spec has, too, have the same names there.
const (
	StateJoining = "joining" // its process runs, and it is in no view
	StateRunning = "running"
	StateWaiting = "waiting" // for another peer, or for a quorum
	StateParked  = "parked"
	StateLeft    = "left"
	StateLost    = "lost"
	StateDone    = "done"
	StateExited  = "exited" // its process has ended, and no event says why
)

// instant is a time in nanoseconds since 1970; 0 if unknown.
type instant int64

// earliest and latest bound the times of events in seconds. Other times are mistakes, and count as unknown.
const (
	earliest = 1_000_000_000 // 2001
	latest   = 4_000_000_000 // 2096
)

// instantOf converts a time of an event.
func instantOf(t time.Time) instant {
	if s := t.Unix(); s < earliest || s > latest {
		return 0
	}
	return instant(t.UnixNano())
}

// time returns the instant as a Time; the zero Time if it is unknown.
func (i instant) time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// since returns the duration from other to i; 0 if it is negative.
func (i instant) since(other instant) time.Duration { return time.Duration(max(0, i-other)) }

// plus returns the instant that is d later.
func (i instant) plus(d time.Duration) instant { return i + instant(d) }

// row is one process of a peer: its life, its last figures, and what it has spent its time on.
type row struct {
	ids      []string // short IDs, the latest last; a fenced process goes on with another ID
	launcher string
	index    int // at its launcher; -1 if unknown
	about    event.Member
	heard    bool    // it has reported events of its own
	sign     instant // of its last event
	rank     int     // in the latest view; -1 if in none

	begin, cursor instant // the time from begin to cursor is accounted
	hello         instant // when its launcher heard of it
	uses          Uses
	parked        time.Duration // not in uses
	strip         strip         // uses, by time
	waitedFor     Waited

	founder  bool   // it is a member of the first view
	member   bool   // it has reported a view
	listed   bool   // a view has it
	stepped  bool   // it has made a step
	catching bool   // it was put out, and has made no step since
	epoch    uint64 // of its last step
	copying  time.Duration
	saved    int64 // step of its last checkpoint; -1 if that one is accounted
	held     []hold
	open     hold // the wait that goes on; from is 0 if there is none
	state    string
	last     event.Step // without slices
	lastStep int64
	share    int // microbatches of the last step
	steps    int64
	samples  int64
	lengths  Histogram
	length   time.Duration      // of all steps
	paths    map[string]string  // kinds of the paths to others, by ID
	links    map[string]float64 // speeds of the links to it in MB/s, by the sender
	usage    event.Usage
	usageAt  instant
	cpu      float64 // processors in use, by the last two usages
	exit     *event.Exit
	cause    string // of a loss
	reason   string // of leaving
}

// hold is an interval in which a peer could not work.
type hold struct {
	from, to instant
	kind     holdKind
	culprit  string // short IDs of those that hold it up, separated by commas
}

// holdKind is the cause of a hold.
type holdKind int

const (
	holdParked holdKind = iota
	holdStall
	holdQuorum
)

// maxHolds bounds the intervals of a peer that no step has covered yet.
const maxHolds = 64

// id returns the short ID that the process has at present; "" if it has none yet.
func (r *row) id() string {
	if len(r.ids) == 0 {
		return ""
	}
	return r.ids[len(r.ids)-1]
}

// starts sets the begin of the process, if it is earlier than what is known. The time up to the former
// begin is accounted as Start.
func (r *row) starts(at instant) {
	switch {
	case at == 0:
	case r.begin == 0:
		r.begin, r.cursor = at, at
	case at < r.begin:
		r.uses[Start] += r.begin.since(at)
		r.begin = at
	}
}

// signs notes an event of the peer itself.
func (r *row) signs(at instant) {
	r.heard = true
	r.sign = max(r.sign, at)
	r.starts(at)
}

// ended reports whether nothing more is expected of the process.
func (r *row) ended() bool {
	return r.state == StateLeft || r.state == StateLost || r.state == StateDone || r.state == StateExited
}

// hold adds an interval that is over. It gives up what is accounted already, or in another hold.
func (r *row) hold(h hold) {
	h.from = max(h.from, r.cursor)
	if n := len(r.held); n > 0 {
		h.from = max(h.from, r.held[n-1].to)
	}
	if h.from >= h.to {
		return
	}
	if len(r.held) == maxHolds {
		r.held = slices.Delete(r.held, 0, 1)
	}
	r.held = append(r.held, h)
}

// begins notes that a wait begins or goes on. A wait of another kind ends the former.
func (r *row) begins(kind holdKind, culprit string, at instant) {
	if at == 0 {
		return
	}
	if r.open.from != 0 && r.open.kind == kind {
		r.open.to, r.open.culprit = max(r.open.to, at), culprit
		return
	}
	r.ends(at)
	r.open = hold{at, at, kind, culprit}
}

// ends notes that the open wait, if there is one, has ended.
func (r *row) ends(at instant) {
	if r.open.from != 0 {
		r.open.to = at
		r.hold(r.open)
		r.open = hold{}
	}
}

// take removes the parts of the holds up to an instant, and returns them.
func (r *row) take(to instant) (taken []hold) {
	for len(r.held) > 0 && r.held[0].from < to {
		h := r.held[0]
		if h.to > to {
			r.held[0].from, h.to = to, to
			return append(taken, h)
		}
		taken = append(taken, h)
		r.held = slices.Delete(r.held, 0, 1)
	}
	return taken
}

// idle accounts the time from the cursor to until, in which the peer has made no step. epoch is that of
// the next step; 0 if there is none. It returns how the time is accounted, and for whom the peer waited.
func (r *row) idle(until instant, epoch uint64) (spent Uses, charges []charge) {
	gap := until.since(r.cursor)
	if r.cursor == 0 || gap == 0 {
		return spent, nil
	}
	from := r.cursor
	for _, h := range r.take(until) {
		d := h.to.since(max(h.from, from))
		gap -= d
		if h.kind == holdParked {
			r.parked += d
			continue
		}
		spent[Stalled] += d
		if h.kind == holdStall {
			charges = append(charges, charge{h.culprit, waitCall, d})
		}
	}
	r.cursor = until
	switch {
	case !r.stepped && (r.founder || !r.member && r.hello == 0):
		spent[Start] += gap
	case !r.stepped:
		starting := min(gap, r.hello.since(from))
		spent[Start] += starting
		spent[CatchUp] += gap - starting
	case r.catching:
		spent[CatchUp] += gap
	case epoch != r.epoch:
		copying := min(gap, r.copying)
		spent[CatchUp] += copying
		spent[Change] += gap - copying
	default:
		spent[Other] += gap
	}
	r.copying = 0
	r.spend(from, until, spent)
	return spent, charges
}

// parts returns the parts of the time of a step, of the step's own times. evaluated is the time of the
// evaluations before it.
func (r *row) parts(n int64, s *event.Step, evaluated time.Duration) (u Uses) {
	count := 0
	for _, m := range s.Microbatches {
		count += max(0, m[1]-m[0])
	}
	u[Useful] = duration(s.ComputeMS)
	if s.Recomputed > 0 && count > 0 {
		again := min(1, float64(s.Recomputed)/float64(count))
		u.move(Useful, Recompute, time.Duration(again*float64(u[Useful])))
	}
	if s.Began.IsZero() { // an older version
		u[Communicate] = duration(s.CommMS)
		return u
	}
	u[Recompute] += duration(s.LostMS)
	u[Other] = duration(s.PointMS)
	u.move(Other, Evaluate, evaluated)
	if r.saved >= 0 && r.saved+1 >= n {
		u.move(Other, Checkpoint, u[Other])
		r.saved = -1
	}
	u[Data] = duration(s.DataMS)
	u[Wait] = duration(s.WaitMS)
	u[Communicate] = plus(duration(s.ReduceMS), duration(s.CommitMS))
	u[Apply] = duration(s.ApplyMS)
	return u
}

// stride is a step of a peer, as its time is accounted.
type stride struct {
	epoch  uint64
	began  instant
	length time.Duration
	parts  Uses // of the time that the event has
	// skipped is set if steps before it have no event, as in fast loops. The time since the last step is
	// divided as that of this step then.
	skipped bool
	waitFor string // short ID; "" if it is unknown or the peer itself
}

// step accounts the time up to the end of a step: the gap before it, and its own time. It returns how both
// are accounted, and for whom the peer waited.
func (r *row) step(s stride) (gap, spent Uses, charges []charge) {
	end := s.began.plus(s.length)
	if r.open.from != 0 && r.open.from < end { // an older version does not tell when a wait is over
		r.ends(r.open.to)
	}
	length := s.length
	switch {
	case r.follows(s):
		end = r.cursor.plus(length)
	case s.skipped && s.epoch == r.epoch && len(r.held) == 0 && r.cursor < s.began:
		length = end.since(r.cursor)
		s.parts.grow(length)
	default:
		gap, charges = r.idle(s.began, s.epoch)
		length = end.since(r.cursor)
	}
	r.stepped, r.catching, r.epoch = true, false, s.epoch
	if length == 0 {
		return gap, spent, charges
	}
	s.parts.fit(length)
	for _, h := range r.take(max(end, s.began.plus(s.length))) {
		d := h.to.since(max(h.from, r.cursor))
		moved := s.parts.move(Wait, Stalled, d)
		moved += s.parts.move(Communicate, Stalled, d-moved)
		if h.kind == holdStall {
			charges = append(charges, charge{h.culprit, waitCall, moved})
		}
	}
	if s.waitFor != "" {
		charges = append(charges, charge{s.waitFor, waitComputing, s.parts[Wait]})
	}
	r.spend(r.cursor, end, s.parts)
	r.cursor = end
	return gap, s.parts, charges
}

// spend accounts what was spent between two instants.
func (r *row) spend(from, to instant, spent Uses) {
	r.uses.add(spent)
	r.strip.add(from, to, spent)
}

// follows reports whether a step follows the last one of its peer as closely as two steps can. Steps whose
// computing begins during the step before have that computing in their own time, so the gaps between them
// have either sign and cancel out. The whole of such a step is accounted, and what its gap is more or less than
// zero stays between the cursor and the clock, until it is longer than a step.
func (r *row) follows(s stride) bool {
	gap := time.Duration(s.began - r.cursor)
	calm := len(r.held) == 0 || r.held[0].from >= s.began
	return r.stepped && !r.catching && !s.skipped && s.epoch == r.epoch && calm && max(gap, -gap) <= s.length
}

// finish accounts the time up to the end of the process or of its part in the job, and sets its state.
// evaluated is the time of evaluations after its last step.
func (r *row) finish(at instant, state string, evaluated time.Duration) []charge {
	r.ends(at)
	epoch := r.epoch
	if state == StateLost || state == StateExited {
		epoch = 0 // its last work is lost by the change
	}
	before := r.uses[Other]
	_, charges := r.idle(at, epoch)
	if d := r.uses[Other] - before; d > 0 {
		r.uses.move(Other, Evaluate, min(d, evaluated))
	}
	r.state = state
	return charges
}

// use notes what the process uses.
func (r *row) use(u event.Usage, at instant) {
	if d := at.since(r.usageAt).Seconds(); r.usageAt != 0 && d > 0 {
		r.cpu = max(0, finite((u.CPUS-r.usage.CPUS)/d))
	}
	u.CPUS, u.Sent, u.Received = finite(u.CPUS), maps.Clone(u.Sent), maps.Clone(u.Received)
	r.usage, r.usageAt = u, at
}

// is reports whether a short ID is one of the process.
func (r *row) is(id string) bool { return slices.Contains(r.ids, id) }

// keep keeps the figures of the last step, without the slices of its event.
func (r *row) keep(n int64, s *event.Step) {
	r.lastStep, r.last = n, *s
	r.last.Microbatches, r.last.OfLost, r.last.Metrics, r.share = nil, nil, nil, 0
	for _, m := range s.Microbatches {
		r.share += max(0, m[1]-m[0])
	}
	r.steps++
	r.samples += int64(s.ShareSamples)
	if d := duration(s.StepMS); d > 0 {
		r.lengths.add(d)
		r.length = plus(r.length, d)
	}
}

// maxPaths bounds the paths of a peer that are remembered.
const maxPaths = 256

// reach notes the path to another peer.
func (r *row) reach(p event.Path) {
	if r.paths == nil || len(r.paths) >= maxPaths {
		r.paths = make(map[string]string)
	}
	r.paths[p.Who] = p.Kind
}
