package elastic

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// Turn is one attempt at one step, see Group.Steps. It is valid until the body of the loop has
// handled it. Except for Comm, a Turn may be used only in the goroutine of the body.
type Turn struct {
	// Comm is the communicator of the members that try the step together. It is revoked when one of
	// them is lost: calls then return an error, and the body continues the loop.
	Comm *collective.Comm
	// Rank is this peer's rank in Comm.
	Rank int

	loop         *loop
	session      *Session
	step         int64 // the step that the turn tries
	begun, ended time.Time
	first        atomic.Int64 // when the first call began, in nanoseconds since begun; 0 before the first call

	samples   int           // argument of the first Part; -1 before the first Part
	lo, hi    int           // this peer's part of the samples
	late      bool          // Part came after the first call, so the time until that call is no measurement
	predicted time.Duration // forecast of the computing time; 0 if it is unknown
	stop      bool
	leaving   bool  // Leaving was called
	fail      error // argument of Fail
	wrong     error // a mistake in the use of this turn
	metrics   []metric
	total     time.Duration // of the step; 0 unless this peer has the records of its members
	times     event.Times   // parts of total

	// mu guards the fields below.
	mu       sync.Mutex
	callErr  error // error of the first call that failed
	failedAt int64 // step of the state when that call failed
}

// Part divides the n samples of the step among the members, and returns this peer's part [lo, hi).
// The parts of all peers cover every sample once. All peers call Part with the same n >= 0. Further
// calls in a turn divide other samples in the same proportions.
//
// The parts follow the measured speeds: the samples of a peer divided by the time from the
// beginning of the turn to its first call on Comm. The policies of package loadbal compute in
// integers, from data that all members have exchanged, so all members compute the same parts. The
// option Equal gives all members the same number of samples. With at least as many samples as
// members, every member gets at least one.
func (t *Turn) Part(n int) (lo, hi int) {
	if n < 0 || int64(n) > maxSamples {
		if t.wrong == nil {
			t.wrong = fmt.Errorf("Turn.Part(%d) in step %d: want the number of samples of the step, 0 to %d", n, t.step, int64(maxSamples))
		}
		return 0, 0
	}
	d := t.session.division
	if t.samples < 0 {
		// Part after the first call gives no measurement: the time until that call did not depend
		// on the part.
		t.samples, t.late = n, t.first.Load() != 0
		d.divide(n)
		t.lo, t.hi = d.part(n, t.Rank)
		t.predicted = d.forecast(t.Rank)
	}
	return d.part(n, t.Rank)
}

// Stop ends the loop of all peers after the step that this turn commits. It suffices that one peer
// calls Stop. If the turn fails, the step is tried again, and Stop must be called again.
func (t *Turn) Stop() { t.stop = true }

// Epoch returns the epoch of the view in which the turn tries the step. After a failed turn the loop
// goes on in a later view, so the epoch tells the attempts at a step apart.
func (t *Turn) Epoch() uint64 { return t.session.View.Epoch }

// View returns the view in which the turn tries the step. Rank and the ranks of Comm are those of its
// members. Its Hash differs from the hash of each other view, also where two parts of a group that was
// cut go on by themselves with equal epochs.
func (t *Turn) View() View { return t.session.View }

// Leaving returns the ranks of the members that were asked to leave and leave after this turn, the same
// at all members, in ascending order. It is for programs in which a member holds what the others do not
// have. The others take that over in this turn, while the member still takes part in the calls.
//
// If the turns of a loop call Leaving, Leave waits until a turn has returned this member's rank and its
// step is committed. All members call it in each turn, or none does. The slice belongs to the group.
func (t *Turn) Leaving() []int {
	if !t.leaving {
		t.leaving = true
		t.loop.group.orders.deferLeave(true)
	}
	return t.session.division.leaving
}

// Fail ends the loop at this peer with err, which Group.Err returns. It is for a peer that cannot
// do its part, for example because it cannot read its data. The other peers go on without this
// peer. A nil err is a mistake of the program.
func (t *Turn) Fail(err error) {
	switch {
	case err != nil && t.fail == nil:
		t.fail = err
	case err == nil && t.wrong == nil:
		t.wrong = fmt.Errorf("Turn.Fail(nil) in step %d: call it with the reason", t.step)
	}
}

// Report reports a value of this step under a name, such as "loss", for the progress line of elrun,
// elrun status and the step events of the log. If the step is committed, the mean over the peers
// that have reported the value is shown, and with ReportSum as kind the sum. All peers count equally
// in the mean: for a mean over samples each peer reports its sum over its samples, divided by the
// samples of the step, with ReportSum.
//
//	t.Report("loss", sum/batch, elastic.ReportSum)
//
// A value counts once: the last one that a peer has reported under the name since the last step
// event, as of fast steps only some have an event. Any peers may report in any steps. A step event
// with values costs one collective call of all peers; a loop that reports nothing makes none.
//
// These mistakes end the loop at all peers: a value that is not finite, a name that is empty, longer
// than 40 bytes or has characters that cannot be printed, more than 16 names over all peers, and a
// name with different kinds.
func (t *Turn) Report(name string, x float64, kind ...ReportKind) {
	m := metric{name: name, value: x}
	for _, k := range kind {
		m.kind = k
	}
	err := m.check()
	if err == nil {
		t.metrics, err = addMetric(t.metrics, m)
	}
	if err != nil && t.wrong == nil {
		t.wrong = fmt.Errorf("Turn.Report(%.60q, %v) in step %d: %w", name, x, t.step, err)
	}
}

// ReportKind tells how Turn.Report combines the values of the peers.
type ReportKind uint8

const (
	// ReportMean, the default, is the mean over the peers that have reported the value.
	ReportMean ReportKind = iota
	// ReportSum is the sum over these peers.
	ReportSum
)

// Busy reports that this peer does long work, for example an evaluation, until done is called. The
// log shows the text what if the other members wait for this peer for long. However long the work
// takes, the others do not ask this peer to step down. Without Busy they may ask it to step down
// after five minutes in the body.
func (t *Turn) Busy(what string) (done func()) {
	t.loop.group.current().report.busy(what)
	return func() {
		if t.session.turn.Load() == t {
			t.loop.group.current().report.busy(bodyBusy)
			t.loop.busy.Reset(bodyTerm)
		}
	}
}

const (
	// bodyBusy is the reason that a member reports while it is in the body of its loop.
	bodyBusy = "in the body of its loop"
	// bodyTerm is the time for which that reason counts.
	bodyTerm = 5 * time.Minute
)

// callBegins records the time of the first call in the session's turn, if there is one.
func (s *Session) callBegins() {
	t := s.turn.Load()
	if t != nil && t.first.Load() == 0 {
		t.first.CompareAndSwap(0, max(1, int64(time.Since(t.begun))))
	}
}

// callFailed records the first failed call in the session's turn, with the step of the state. A
// call that fails after the commit does not invalidate the commit, because the commit did not
// depend on that call.
func (s *Session) callFailed(err error) {
	t := s.turn.Load()
	if t == nil || errors.Is(err, collective.ErrConcurrent) { // ErrConcurrent: another goroutine made a wrong call
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.callErr == nil {
		t.callErr, t.failedAt = err, t.loop.state.Step()
	}
}

// failure returns the error of the first failed call, and the state's step when that call failed.
func (t *Turn) failure() (at int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failedAt, t.callErr
}

// computing returns the time for which this peer computed: until its first call, or the whole turn
// if it made no call.
func (t *Turn) computing() time.Duration {
	if first := t.first.Load(); first > 0 {
		return time.Duration(first)
	}
	return t.ended.Sub(t.begun)
}

// metric is a value that a member has reported under a name.
type metric struct {
	name  string
	value float64
	kind  ReportKind
}

// Bounds of Turn.Report.
const (
	maxMetrics    = 16 // different names, over all peers
	maxMetricName = 40 // bytes of a name
	// metricHead is the number of bytes of an encoded metric before its name.
	metricHead = 10
	// maxMetricBytes bounds the encoded metrics of a member.
	maxMetricBytes = maxMetrics * (metricHead + maxMetricName)
)

// check returns an error for a metric that cannot be reported.
func (m metric) check() error {
	switch {
	case math.IsNaN(m.value) || math.IsInf(m.value, 0):
		return errors.New("the value is not finite: report it only if it is, and end a training that diverges by Turn.Fail or Turn.Stop")
	case m.name == "" || len(m.name) > maxMetricName:
		return fmt.Errorf("the name has %d bytes: want 1 to %d", len(m.name), maxMetricName)
	case strings.ContainsFunc(m.name, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
		return errors.New("the name has characters that cannot be printed: use letters, digits and signs")
	case m.kind > ReportSum:
		return fmt.Errorf("unknown kind %d: want ReportMean or ReportSum", m.kind)
	}
	return nil
}

// addMetric returns all with m, which replaces an earlier value of the name.
func addMetric(all []metric, m metric) ([]metric, error) {
	i := slices.IndexFunc(all, func(other metric) bool { return other.name == m.name })
	switch {
	case i < 0 && len(all) == maxMetrics:
		return all, fmt.Errorf("a loop reports at most %d names: leave out some", maxMetrics)
	case i < 0:
		return append(all, m), nil
	case all[i].kind != m.kind:
		return all, errKinds
	}
	all[i].value = m.value
	return all, nil
}

// errKinds means that a name was reported with different kinds.
var errKinds = errors.New("it is reported as a mean and as a sum: use one kind for a name, at all peers")
