package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// record is what each member tells the others between two turns, and when it enters a
// session.
type record struct {
	loop    int   // which call of Steps this is, from 1
	until   int64 // of that
	step    int64 // that the state has committed
	samples int64 // that Turn.Part was asked to cut; -1 if it was not
	micros  int64 // that this member computed for its part, in microseconds; 0 if that is no measure
	speed   int64 // of the member, when it enters a session
	digest  uint64
	stale   bool // it knows of a later view
	stop    bool // it wants to stop
	cheap   bool // it has the time for a digest of its state
}

// recordWords is the number of int64 of an encoded record.
const recordWords = 8

func (r record) words() []int64 {
	flags := int64(0)
	for i, set := range []bool{r.stale, r.stop, r.cheap} {
		if set {
			flags |= 1 << i
		}
	}
	return []int64{int64(r.loop), r.until, r.step, r.samples, r.micros, r.speed, int64(r.digest), flags}
}

func recordsOf(words []int64) []record {
	var all []record
	for w := range slices.Chunk(words, recordWords) {
		all = append(all, record{loop: int(w[0]), until: w[1], step: w[2], samples: w[3], micros: w[4], speed: w[5],
			digest: uint64(w[6]), stale: w[7]&1 != 0, stop: w[7]&2 != 0, cheap: w[7]&4 != 0})
	}
	return all
}

// stepsSetting is what messages call the steps of a loop.
func stepsSetting(until int64) Setting { return Setting{Name: "steps", Value: fmt.Sprint(until)} }

// compareLoops wants members that are in the same loop to want the same number of steps of it.
// It also takes note that the loop of this member is over, as others know of the present one:
// they have stopped it, or are in a later one.
func (g *Group) compareLoops(s *Session, all []account) error {
	l := &g.loops
	var settings [][]Setting
	var names []string
	for rank, a := range all {
		switch {
		case a.loop == 0:
		case a.loop == l.ordinal():
			settings, names = append(settings, []Setting{stepsSetting(a.until)}), append(names, s.names()[rank])
			l.stopped = l.stopped || a.stopped
		case a.loop > l.ordinal():
			l.stopped = true
		}
	}
	if l.ordinal() == 0 || len(settings) == 0 {
		return nil
	}
	why := disagreement(settings, names)
	if why == "" {
		return nil
	}
	g.Emit(s.View.Epoch, 0, event.Mismatch{Reason: why})
	return fmt.Errorf("%w: %s", ErrSettings, why)
}

// differError says what the members of a session do differently in their loops.
type differError string

// Error implements error.
func (e differError) Error() string { return string(e) }

// Is reports collective.ErrMistake.
func (e differError) Is(target error) bool { return target == collective.ErrMistake }

// compareRecords returns what members do differently, or nil. It is a pure function of what
// all have gathered. names holds a name for each member.
func compareRecords(all []record, names []string) error {
	ask := func(what string, value func(record) any, remedy string) error {
		values := make([]any, len(all))
		for rank, r := range all {
			values[rank] = value(r)
		}
		odd, usual := oddOnes(values)
		if odd < 0 {
			return nil
		}
		return differError(fmt.Sprintf("%s %s %v, %s %v: %s", names[odd], what, values[odd], names[usual], values[usual], remedy))
	}
	return cmp.Or(
		ask("is in loop", func(r record) any { return fmt.Sprintf("%d, of %d steps", r.loop, r.until) }, "let all peers call Steps alike"),
		ask("has committed step", func(r record) any { return r.step }, "let all peers commit the same steps"),
		ask("calls Part with", func(r record) any { return r.samples }, "let all pass the samples of the whole step (-1: it was not called)"),
		differentStates(all, names))
}

// differentStates compares the digests of those who have taken one.
func differentStates(all []record, names []string) error {
	var digests []any
	var ranks []int
	for rank, r := range all {
		if r.digest != 0 {
			digests, ranks = append(digests, r.digest), append(ranks, rank)
		}
	}
	odd, _ := oddOnes(digests)
	if odd < 0 {
		return nil
	}
	return differError(fmt.Sprintf("after step %d the state of %s is not that of the others: commit only what calls have reduced, and Save in one order",
		all[0].step, names[ranks[odd]]))
}

// oddOnes returns the first value that is not the most common one, and the first that is. Of
// several that are as common the first one counts. odd is -1 where all are equal.
func oddOnes(values []any) (odd, usual int) {
	count := make(map[any]int)
	for _, v := range values {
		count[v]++
	}
	for i, v := range values {
		if count[v] > count[values[usual]] {
			usual = i
		}
	}
	return slices.IndexFunc(values, func(v any) bool { return v != values[usual] }), usual
}

// enter lets the members of a session tell each other how fast they are.
func (l *loop) enter(s *Session) error {
	g := l.group
	all, err := l.exchange(s, record{speed: g.loops.speeds.speed(), samples: -1})
	if err != nil {
		return l.failed(l.state.Step()+1, fmt.Errorf("enter %v: %w", s.View, err), s.Comm.Err())
	}
	speeds := make([]int64, len(all))
	for rank, r := range all {
		speeds[rank] = r.speed
	}
	s.division = newDivision(g.loops.balance, speeds)
	if s.division.told = g.loops.told; s.division.told == nil {
		s.division.why = "start"
	}
	return nil
}

// boundary lets the members tell each other what the turn brought, and decides together with
// them how to go on: nil for another turn, errAgain for another session. When it returns nil
// all have committed the step.
func (l *loop) boundary(s *Session, t *Turn) error {
	g, d := l.group, s.division
	mine := record{samples: int64(t.samples), micros: l.measure(t), stale: s.Stale(), stop: t.stop,
		cheap: g.loops.digests.cheap(time.Now())}
	if d.due || l.over() {
		if err := l.digest(&mine); err != nil {
			return l.mistake(t, "%w", err)
		}
	}
	all, err := l.exchange(s, mine)
	if err != nil {
		g.loops.open = t
		return l.failed(t.step, fmt.Errorf("boundary: %w", err), s.Comm.Err())
	}
	g.loops.peers = len(all)
	g.Stable(t.step)
	d.learn(all)
	d.due = !slices.ContainsFunc(all, func(r record) bool { return !r.cheap })
	l.report(t)
	if slices.ContainsFunc(all, func(r record) bool { return r.stop }) {
		return l.stop(s, t)
	}
	if slices.ContainsFunc(all, func(r record) bool { return r.stale }) && !l.over() {
		d.left = true
		return errAgain
	}
	return nil
}

// stop ends the loop after the step of t. A member that has not heard of it could go on, where
// one is lost at this moment: so all tell each other that they know, and who does not hear
// that of all tells it in the next session.
func (l *loop) stop(s *Session, t *Turn) error {
	l.stopped, l.group.loops.stopped = true, true
	mine := record{samples: -1}
	if err := l.digest(&mine); err != nil {
		return l.mistake(t, "%w", err)
	}
	if _, err := l.exchange(s, mine); err != nil {
		return l.failed(t.step, fmt.Errorf("stop: %w", err), s.Comm.Err())
	}
	return nil
}

// exchange gathers the records of all members, and compares them. What is common to all
// records is filled in.
func (l *loop) exchange(s *Session, mine record) ([]record, error) {
	mine.loop, mine.until, mine.step = l.group.loops.ordinal(), l.until, l.state.Step()
	n := s.Comm.Size()
	words := make([]int64, recordWords*n)
	if err := collective.AllGather(l.ctx, s.Comm.With(collective.CallOptions{For: "boundary"}), words, mine.words()); err != nil {
		return nil, err
	}
	all := recordsOf(words)
	if err := compareRecords(all, s.names()); err != nil {
		return nil, err // all come to the same
	}
	return all, nil
}

// names returns a name for each member.
func (s *Session) names() []string {
	names := make([]string, len(s.View.Members))
	for rank, m := range s.View.Members {
		names[rank] = nameOf(m, s.View.Members[s.Rank])
	}
	return names
}

// measure returns how long this peer computed for its part of a committed step, in
// microseconds, and remembers its speed; 0 if that is no measure.
func (l *loop) measure(t *Turn) int64 {
	if t.hi == t.lo || t.late || t.first.Load() == 0 {
		return 0
	}
	l.group.loops.speeds.note(t.hi-t.lo, t.computing())
	return max(1, t.computing().Microseconds())
}

// digestShare is the part of the time that digests of the state may take.
const digestShare = 100

// digests knows what a digest of the state takes.
type digests struct {
	took time.Duration // the last one
	at   time.Time     // of the last one
}

// cheap reports whether one takes no more than its part of the time.
func (d digests) cheap(now time.Time) bool { return now.Sub(d.at) >= digestShare*d.took }

// digest takes that of the state into a record.
func (l *loop) digest(r *record) (err error) {
	if len(l.group.using().View.Members) > 1 {
		r.digest, err = l.group.digest()
	}
	return err
}

// digest returns a fingerprint of the state, never 0.
func (g *Group) digest() (uint64, error) {
	begun := time.Now()
	h := xxhash.New()
	if err := hashState(h, g.state); err != nil {
		return 0, fmt.Errorf("save the state after step %d: %w", g.state.Step(), err)
	}
	g.loops.digests = digests{took: time.Since(begun), at: time.Now()}
	return max(h.Sum64(), 1), nil
}

// reportPeriod is the least time between two steps in the log: a loop may take thousands a
// second. The first one of a session and the last one are there in any case.
const reportPeriod = 10 * time.Millisecond

// report writes a committed step to the log.
func (l *loop) report(t *Turn) {
	g, d := l.group, t.session.division
	if shares := d.changed(t.samples); shares != nil {
		g.loops.told = shares.New
		if t.session.speaks() {
			g.Emit(t.session.View.Epoch, t.step, *shares)
		}
	}
	recomputed := g.loops.recomputed
	g.loops.recomputed = 0
	if d.written && recomputed == 0 && !l.over() && !t.stop && t.ended.Sub(g.loops.reported) < reportPeriod {
		return
	}
	d.written, g.loops.reported = true, t.ended
	ranges := [][2]int{}
	if t.hi > t.lo {
		ranges = append(ranges, [2]int{t.lo, t.hi})
	}
	g.Emit(t.session.View.Epoch, t.step, event.Step{
		Microbatches: ranges, ShareSamples: t.hi - t.lo, Samples: max(0, t.samples), Recomputed: recomputed, Of: l.until,
		ComputeMS: milliseconds(t.computing()), CommMS: milliseconds(t.ended.Sub(t.begun) - t.computing()),
		StepMS: milliseconds(time.Since(t.begun)), PredictedMS: milliseconds(t.predicted),
	})
}

// settle takes note, in a session whose members are level, of what has become of the last turn
// of a session that broke: the step has counted with what this peer contributed, or it is tried
// again.
func (l *loop) settle(s *Session) {
	g := l.group
	t := g.loops.open
	if g.loops.open = nil; t == nil {
		return
	}
	same := t.session.View.Members[t.Rank].ID == s.View.Members[s.Rank].ID // it was not put out meanwhile
	switch {
	case l.state.Step() < t.step:
		g.loops.recomputed += t.hi - t.lo
	case same:
		g.loops.peers = len(t.session.View.Members)
		l.report(t)
	}
}

// speaks reports whether this member writes to the log what all of its launcher know: the
// lowest rank does.
func (s *Session) speaks() bool {
	launcher := s.View.Members[s.Rank].Launcher
	return slices.IndexFunc(s.View.Members, func(m Member) bool { return m.Launcher == launcher }) == s.Rank
}

// loops is what a group knows of its loops, in the goroutine of the body.
type loops struct {
	untils     []int64 // of the calls of Steps, in their order
	balance    Balance
	epoch      uint64 // of the session in use
	stopped    bool   // the present loop ends at the step of the state
	peers      int    // members that have committed the last step
	speeds     speedometer
	digests    digests
	told       []int     // shares in the log
	reported   time.Time // when a step was last written
	recomputed int       // samples of this peer in tries at the open step that failed
	open       *Turn     // the last one, where it is not known what has become of it
}

// ordinal is the number of the present call of Steps, 0 before the first.
func (l *loops) ordinal() int { return len(l.untils) }

// follows says why a later loop cannot go on from the ones before, or returns nil.
func (l *loops) follows(next *loop, settings []Setting) error {
	switch g := next.group; {
	case differ(g.settings, settings) != "":
		return fmt.Errorf("a later loop has the options and the kind of state of the first: %s", differ(g.settings, settings))
	case next.state.Step() < g.state.Step():
		return fmt.Errorf("the state is at step %d and the group has committed %d: a later loop goes on from there", next.state.Step(), g.state.Step())
	}
	return nil
}

// first is how many steps the first loop is to have committed, 0 without one.
func (l *loops) first() int64 {
	if len(l.untils) == 0 {
		return 0
	}
	return l.untils[0]
}

// until returns the last step of the present call of Steps.
func (l *loops) until() int64 {
	if len(l.untils) == 0 {
		return 0
	}
	return l.untils[len(l.untils)-1]
}
