package elastic

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// record is a member's report, made at each boundary between two turns, and when the member enters
// a session. Each member gathers the records of all members.
type record struct {
	loop    int    // number of the call of Steps, from 1
	until   int64  // last step of this call of Steps
	step    int64  // last step that the state has committed
	samples int64  // argument of Turn.Part; -1 if Part was not called
	micros  int64  // time to compute this member's part, in µs; 0 if there is no valid measurement
	speed   int64  // speed when the member enters a session, see speedometer; 0 if unknown
	digest  uint64 // fingerprint of the state; 0 if it was not computed
	stale   bool   // this member knows a later view
	stop    bool   // the body called Turn.Stop
	cheap   bool   // this member may compute a digest of the state now, see digests.cheap
	logs    bool   // this member wants a step event, see loop.logs
	leaving bool   // this member was asked to leave, and waits until a turn has told the others
	metrics int    // bytes of the metrics that are in no step event yet
}

// recordWords is the number of int64 of an encoded record.
const recordWords = 8

// metricsShift is the position of record.metrics in the last word of an encoded record.
const metricsShift = 8

// words returns the encoded record: one int64 for each number, and a last one with a bit for each
// flag and the length of the metrics.
func (r record) words() []int64 {
	flags := int64(r.metrics) << metricsShift
	for i, set := range []bool{r.stale, r.stop, r.cheap, r.logs, r.leaving} {
		if set {
			flags |= 1 << i
		}
	}
	return []int64{int64(r.loop), r.until, r.step, r.samples, r.micros, r.speed, int64(r.digest), flags}
}

// recordsOf is the inverse of words, for the records of all ranks.
func recordsOf(words []int64) []record {
	var all []record
	for w := range slices.Chunk(words, recordWords) {
		all = append(all, record{loop: int(w[0]), until: w[1], step: w[2], samples: w[3], micros: w[4], speed: w[5],
			digest: uint64(w[6]), stale: w[7]&1 != 0, stop: w[7]&2 != 0, cheap: w[7]&4 != 0, logs: w[7]&8 != 0, leaving: w[7]&16 != 0, metrics: int(w[7] >> metricsShift)})
	}
	return all
}

// stepsSetting returns the number of steps of a loop as a Setting, so that settings and steps are
// compared and described alike.
func stepsSetting(until int64) Setting { return Setting{Name: "steps", Value: fmt.Sprint(until)} }

// compare returns ErrSettings if members that are in the same loop as this one have different
// numbers of steps. It also records that this member's loop is over, if another member has stopped
// the loop or is in a later loop.
func (l *loops) compare(s *Session, all []account) error {
	var settings [][]Setting
	var names []string
	for rank, a := range all {
		switch {
		case a.loop == 0:
		case a.loop == l.ordinal():
			settings, names = append(settings, []Setting{stepsSetting(a.until)}), append(names, s.names()[rank])
			l.stopped = l.stopped || a.stopped
		// A member in a later loop has finished this member's loop, so that loop is over.
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
	return s.mismatch(why)
}

// compareRecords returns a mistakeError that describes the first difference between members, or
// nil. It is a pure function of the gathered records, so all members that get the records return the
// same error. names holds a name for each member.
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
		return mistakef("%s %s %v, but %s %s %v: %s", names[odd], what, values[odd], names[usual], what, values[usual], remedy)
	}
	return cmp.Or(
		ask("is in loop", func(r record) any { return fmt.Sprintf("%d (of %d steps)", r.loop, r.until) }, "let all peers make the same calls of Steps, with the same until"),
		ask("has committed step", func(r record) any { return r.step }, "let all peers commit the same steps"),
		ask("calls Part with", func(r record) any { return r.samples }, "let all pass the samples of the whole step (-1: it was not called)"),
		differentStates(all, names))
}

// differentStates compares the digests of the members that have taken one.
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
	return mistakef("after step %d the state of %s differs from the others' state: commit only what calls reduced, save in a fixed order, give slices by address: elastic.Vectors(&step, &w)",
		all[0].step, names[ranks[odd]])
}

// oddOnes compares values with the most common value. It returns odd, the index of the first value
// that is not the most common one, and usual, the index of the first value that is. Of several
// equally common values the first counts as the most common. odd is -1 if all values are equal.
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

// enter exchanges the speeds of the members of a session, and makes the division of steps.
func (l *loop) enter(s *Session) error {
	g := l.group
	all, err := l.exchange(s, record{speed: g.loops.speeds.speed(), samples: -1, leaving: g.orders.waiting()})
	if err != nil {
		return l.failed(s, l.state.Step()+1, fmt.Errorf("enter %v: %w", s.View, err))
	}
	speeds := make([]int64, len(all))
	for rank, r := range all {
		speeds[rank] = r.speed
	}
	s.division = newDivision(g.loops.balance, speeds)
	s.division.expect(all)
	if s.division.told = g.loops.told; s.division.told == nil {
		s.division.why = "start"
	}
	return l.stable(s)
}

// stable tells the State of the program that all members of a session have committed its step.
func (l *loop) stable(s *Session) error {
	if l.watched == nil {
		return nil
	}
	if err := l.watched.Stable(s, l.over()); err != nil {
		return l.mistake("after step %d: %w", l.state.Step(), err)
	}
	return nil
}

// boundary exchanges the records of a turn and decides, with the same result at all members, how to
// go on. It returns nil if the loop goes on with another turn or is over, and errAgain if the loop
// goes on in another session. If boundary returns nil, all members have committed the step, so the
// step is stable.
func (l *loop) boundary(s *Session, t *Turn) error {
	g, d := l.group, s.division
	metrics, err := l.unlogged(t)
	if err != nil {
		return l.mistake("%w", err)
	}
	mine := record{samples: int64(t.samples), micros: l.measure(t), stale: s.Stale(), stop: t.stop,
		cheap: g.held.digests.cheap(time.Now()), logs: l.logs(t), leaving: g.orders.waiting(), metrics: len(encodeMetrics(metrics))}
	// due has the same value at all members, and their loops are over at the same step. So either
	// all members compare digests or none does.
	if d.due || l.over() {
		if err := l.digest(&mine); err != nil {
			return l.mistake("%w", err)
		}
	}
	all, err := l.exchange(s, mine)
	if err != nil {
		g.loops.open = t
		return l.failed(s, t.step, fmt.Errorf("exchange the reports about the step: %w", err))
	}
	l.time(t, all)
	g.loops.peers = len(all)
	// The gathered records show that all members have committed the step.
	g.Sessions().Stable(t.step)
	d.learn(all)
	l.handedOver(t)
	d.expect(all)
	// A comparison needs the digests of all members.
	d.due = !slices.ContainsFunc(all, func(r record) bool { return !r.cheap })
	stop := slices.ContainsFunc(all, func(r record) bool { return r.stop })
	if stop {
		l.stopped, g.loops.stopped = true, true
	}
	g.loops.metrics = metrics
	// One member that wants an event lets all write one: a reader of the log gets the parts of all members.
	logs := slices.ContainsFunc(all, func(r record) bool { return r.logs })
	var values map[string]float64
	if logs {
		values, err = l.gatherMetrics(s, metrics, all)
	}
	l.report(t, values, logs)
	// The step is stable, so an exchange that failed takes nothing from a job that is over.
	if err != nil {
		err = l.failed(s, t.step+1, fmt.Errorf("exchange the values of Turn.Report: %w", err))
		if !l.over() || errors.Is(err, collective.ErrMistake) {
			return err
		}
	}
	if err := l.stable(s); err != nil {
		return err
	}
	if stop {
		return l.stop(s, t)
	}
	if slices.ContainsFunc(all, func(r record) bool { return r.stale }) && !l.over() {
		d.left = true
		return errAgain
	}
	return nil
}

// time divides the time of a committed step into parts. The turns of all members begin at nearly the same
// time, so this member has waited for the member that computed for the longest time, if that is known.
func (l *loop) time(t *Turn, all []record) {
	now, computing := time.Now(), t.computing()
	lost := time.Duration(0)
	if l.lostStep == t.step {
		lost = l.lost
	}
	calls, last := t.ended.Sub(t.begun)-computing, t.Rank
	for rank, r := range all {
		if r.micros > all[last].micros {
			last = rank
		}
	}
	wait := time.Duration(0)
	if own := all[t.Rank].micros; own > 0 && last != t.Rank {
		// The words come from other members and may have any value.
		wait = min(calls, time.Duration(min(all[last].micros-own, 1+calls.Microseconds()))*time.Microsecond)
		t.times.WaitFor = t.session.View.Members[last].ID.Short()
	}
	t.total = lost + now.Sub(l.last)
	t.times.Began = now.Add(-t.total)
	t.times.LostMS, t.times.PointMS = milliseconds(lost), milliseconds(t.begun.Sub(l.last))
	t.times.WaitMS, t.times.ReduceMS, t.times.CommitMS = milliseconds(wait), milliseconds(calls-wait), milliseconds(now.Sub(t.ended))
	l.last = now
}

// lose records the time of a turn that has ended in an error, unless the step is committed.
func (l *loop) lose(step int64) {
	if l.state.Step() >= step {
		return
	}
	if l.lostStep != step {
		l.lost, l.lostStep = 0, step
	}
	l.lost += time.Since(l.last)
}

// handedOver lets this member leave, once in a session, if it waits to leave and the members have
// committed a turn that told them, or if the turns do not ask for Leaving any more.
func (l *loop) handedOver(t *Turn) {
	d := t.session.division
	if !l.group.orders.waiting() || d.handed || t.leaving && !slices.Contains(d.leaving, t.Rank) {
		return
	}
	d.handed = true
	l.group.current().leave(false)
}

// unlogged returns the metrics of this member that are in no step event yet, with those of t.
func (l *loop) unlogged(t *Turn) ([]metric, error) {
	all := slices.Clone(l.group.loops.metrics)
	for _, m := range t.metrics {
		var err error
		if all, err = addMetric(all, m); err != nil {
			return nil, fmt.Errorf("Turn.Report(%q) in step %d: %w", m.name, t.step, err)
		}
	}
	return all, nil
}

// gatherMetrics returns the combined metrics of all members; mine are those of this member. It
// exchanges them only if a member has some, and otherwise returns nil. All members make the same decision, from the records.
func (l *loop) gatherMetrics(s *Session, mine []metric, all []record) (map[string]float64, error) {
	if !slices.ContainsFunc(all, func(r record) bool { return r.metrics != 0 }) {
		return nil, nil
	}
	counts, total := make([]int, len(all)), 0
	for rank, r := range all {
		if r.metrics < 0 || r.metrics > maxMetricBytes {
			return nil, mistakef("%s reports %d bytes of values: start all peers with one version of the program", s.names()[rank], r.metrics)
		}
		counts[rank], total = r.metrics, total+r.metrics
	}
	l.group.loops.metrics = nil
	bytes := make([]byte, total)
	if err := collective.AllGatherV(l.ctx, s.Comm.With(collective.CallOptions{For: "boundary"}), bytes, encodeMetrics(mine), counts); err != nil {
		return nil, err
	}
	var ranks [][]metric
	for rank, n := range counts {
		decoded, err := decodeMetrics(bytes[:n])
		if err != nil {
			return nil, mistakef("the values that %s reports: %w", s.names()[rank], err)
		}
		ranks, bytes = append(ranks, decoded), bytes[n:]
	}
	return combineMetrics(ranks)
}

// encodeMetrics returns the encoded metrics, at most maxMetricBytes: for each the kind, the value,
// the length of the name, and the name.
func encodeMetrics(all []metric) []byte {
	var b []byte
	for _, m := range all {
		b = append(b, byte(m.kind))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(m.value))
		b = append(append(b, byte(len(m.name))), m.name...)
	}
	return b
}

// decodeMetrics is the inverse of encodeMetrics. The bytes come from another member.
func decodeMetrics(b []byte) (all []metric, err error) {
	for len(b) > 0 {
		if len(b) < metricHead || len(b) < metricHead+int(b[metricHead-1]) {
			return nil, errors.New("a value is cut off")
		}
		end := metricHead + int(b[metricHead-1])
		m := metric{string(b[metricHead:end]), math.Float64frombits(binary.LittleEndian.Uint64(b[1:])), ReportKind(b[0])}
		if err := m.check(); err != nil {
			return nil, err
		}
		if all, err = addMetric(all, m); err != nil {
			return nil, err
		}
		b = b[end:]
	}
	return all, nil
}

// combineMetrics combines the metrics of all ranks. It is a pure function, so all members get the
// same values, or the same error.
func combineMetrics(ranks [][]metric) (map[string]float64, error) {
	var sums []metric
	count := make(map[string]float64)
	for _, m := range slices.Concat(ranks...) {
		sum := m
		if i := slices.IndexFunc(sums, func(other metric) bool { return other.name == m.name }); i >= 0 {
			// The log cannot represent an infinite sum.
			sum.value = min(max(sums[i].value+m.value, -math.MaxFloat64), math.MaxFloat64)
		}
		var err error
		if sums, err = addMetric(sums, sum); err != nil {
			return nil, mistakef("Turn.Report(%q): %w", m.name, err)
		}
		count[m.name]++
	}
	out := make(map[string]float64)
	for _, m := range sums {
		out[m.name] = m.value
		if m.kind == ReportMean {
			out[m.name] /= count[m.name]
		}
	}
	return out, nil
}

// stop ends the loop after the step of t. If a member dies during the first exchange, another
// member may not receive the records and would go on. So all members confirm the decision in a
// second exchange. A member whose second exchange fails reports the stop in the next session
// (account.stopped).
func (l *loop) stop(s *Session, t *Turn) error {
	mine := record{samples: -1}
	if err := l.digest(&mine); err != nil {
		return l.mistake("%w", err)
	}
	if _, err := l.exchange(s, mine); err != nil {
		return l.failed(s, t.step, fmt.Errorf("exchange the reports about the last step: %w", err))
	}
	return nil
}

// exchange gathers the records of all members and compares them. It fills in the loop and the step
// of this member's record.
func (l *loop) exchange(s *Session, mine record) ([]record, error) {
	mine.loop, mine.until, mine.step = l.group.loops.ordinal(), l.until, l.state.Step()
	n := s.Comm.Size()
	words := make([]int64, recordWords*n)
	if err := collective.AllGather(l.ctx, s.Comm.With(collective.CallOptions{For: "boundary"}), words, mine.words()); err != nil {
		return nil, err
	}
	all := recordsOf(words)
	if err := compareRecords(all, s.names()); err != nil {
		return nil, err
	}
	return all, nil
}

// measure returns the time, in microseconds, in which this peer computed its part of a committed
// step, and records its speed. It returns 0 if there is no valid measurement: no samples, no
// collective call, or a call of Part after the first collective call.
func (l *loop) measure(t *Turn) int64 {
	if t.hi == t.lo || t.late || t.first.Load() == 0 {
		return 0
	}
	l.group.loops.speeds.note(t.hi-t.lo, t.computing())
	return max(1, t.computing().Microseconds())
}

// digest computes the digest of the state into a record, unless this peer is alone.
func (l *loop) digest(r *record) (err error) {
	if len(l.group.sessions.using().View.Members) > 1 {
		r.digest, err = l.group.held.digest()
	}
	return err
}

// reportPeriod is the shortest time between two steps in the log, as a loop may take thousands of
// steps a second. The first step of a session and the last step of a loop are always logged.
const reportPeriod = 10 * time.Millisecond

// logs reports whether this member wants an event of a committed step. Of fast steps it
// wants only some, but always the last step and a step with recomputed samples.
func (l *loop) logs(t *Turn) bool {
	return !t.session.division.written || l.group.loops.recomputed > 0 || l.over() || t.stop ||
		t.ended.Sub(l.group.loops.reported) >= reportPeriod
}

// report tells of new shares, if there are any, and logs a committed step if logs is set.
func (l *loop) report(t *Turn, metrics map[string]float64, logs bool) {
	g, d := l.group, t.session.division
	if shares := d.changed(t.samples); shares != nil {
		g.loops.told = shares.New
		if t.session.speaks() {
			g.Sessions().Emit(t.session.View.Epoch, t.step, *shares)
		}
	}
	if !logs {
		return
	}
	recomputed := g.loops.recomputed
	g.loops.recomputed = 0
	d.written, g.loops.reported = true, t.ended
	if t.total == 0 { // this member has learned of the commit from others
		t.total = time.Since(t.begun)
	}
	ranges := [][2]int{}
	if t.hi > t.lo {
		ranges = append(ranges, [2]int{t.lo, t.hi})
	}
	g.Sessions().Emit(t.session.View.Epoch, t.step, event.Step{
		Microbatches: ranges, ShareSamples: t.hi - t.lo, Samples: max(0, t.samples), Recomputed: recomputed, Of: l.until,
		ComputeMS: milliseconds(t.computing()), CommMS: milliseconds(t.ended.Sub(t.begun) - t.computing()),
		StepMS: milliseconds(t.total), Times: t.times, PredictedMS: milliseconds(t.predicted), Metrics: metrics,
	})
}

// settle determines the outcome of the last turn of a session that broke, once the members of the
// next session are level. Either the step was committed with this peer's contribution, or it is
// tried again and its samples count as recomputed.
func (l *loop) settle(s *Session) {
	g := l.group
	t := g.loops.open
	g.loops.open = nil
	if t == nil {
		return
	}
	same := t.session.View.Members[t.Rank].ID == s.View.Members[s.Rank].ID // this peer was not put out meanwhile
	switch {
	case l.state.Step() < t.step:
		g.loops.recomputed += t.hi - t.lo
	case same:
		g.loops.peers = len(t.session.View.Members)
		l.report(t, nil, l.logs(t))
	}
}

// loops is the state of a group's calls of Steps. The goroutine of the body owns it.
type loops struct {
	err        error   // returned by Err
	untils     []int64 // last steps of the calls of Steps, in order
	balance    Balance
	epoch      uint64 // epoch of the session in use
	stopped    bool   // the present loop ends at the step of the state
	peers      int    // number of members that have committed the last step
	speeds     speedometer
	told       []int     // the last shares in the log, in samples by rank
	reported   time.Time // when a step was last logged
	metrics    []metric  // of committed steps, not in a step event yet
	recomputed int       // samples that this peer computed in failed attempts at the open step
	open       *Turn     // the last turn, while its outcome is unknown; nil otherwise
}

// ordinal returns the number of the present call of Steps, from 1; 0 before the first.
func (l *loops) ordinal() int { return len(l.untils) }

// follows returns an error if the loop next cannot continue the earlier loops.
func (l *loops) follows(next *loop, settings []Setting) error {
	switch g := next.group; {
	case differ(g.held.settings, settings) != "":
		return fmt.Errorf("a later loop must have the same options and the same kind of state as the first: %s", differ(g.held.settings, settings))
	case next.state.Step() < g.held.state.Step():
		return fmt.Errorf("the state is at step %d, but the group has committed step %d: give a later loop the committed state", next.state.Step(), g.held.state.Step())
	}
	return nil
}

// until returns the last step of the present call of Steps; 0 without one.
func (l *loops) until() int64 {
	if len(l.untils) == 0 {
		return 0
	}
	return l.untils[len(l.untils)-1]
}
