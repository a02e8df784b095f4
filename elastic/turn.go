package elastic

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective"
)

// Turn is one try at one step, see Group.Steps. It is valid until its body ends, and but
// for Comm it belongs to the goroutine of the body.
type Turn struct {
	// Comm is the communicator of the members that try the step together. It ends when one
	// of them is lost: calls return an error then, and the body does no more.
	Comm *collective.Comm
	// Rank is that of this peer in Comm.
	Rank int

	loop         *loop
	session      *Session
	step         int64 // that is tried
	begun, ended time.Time
	first        atomic.Int64 // when the first call began, in nanoseconds since begun; 0 if none has

	samples   int           // that Part was asked to cut; -1 if it was not
	lo, hi    int           // this peer's part of them
	late      bool          // Part came after the first call, so that the time before it tells nothing
	predicted time.Duration // of computing; 0 if it is not known
	stop      bool
	fail      error // of Fail
	wrong     error // a mistake in the use of this turn

	mu       sync.Mutex
	callErr  error // of the first call that failed
	failedAt int64 // the step of the state when it failed
}

// newTurn begins a turn.
func newTurn(l *loop, s *Session) *Turn {
	return &Turn{Comm: s.Comm, Rank: s.Rank, loop: l, session: s, step: l.state.Step() + 1, begun: time.Now(), samples: -1}
}

// Part cuts the n samples of the step among the members, and returns this peer's, from lo
// up to and without hi. The parts of all peers cover every sample once. All call it with the
// same n in a step, 0 or more; called again in a turn it cuts other samples in the same
// proportions.
//
// The parts follow measured speeds: a peer's speed is its samples over the time from the
// beginning of the turn to its first call on Comm. The policies are those of package loadbal,
// in integers and from what all members have told each other, so that all come to the same.
// The option Equal gives all the same. Where there are at least as many samples as members
// everybody has one.
func (t *Turn) Part(n int) (lo, hi int) {
	if n < 0 || int64(n) > maxSamples {
		if t.wrong == nil {
			t.wrong = fmt.Errorf("Turn.Part(%d) in step %d: want the number of samples of the step, 0 to %d", n, t.step, int64(maxSamples))
		}
		return 0, 0
	}
	d := t.session.division
	if t.samples < 0 {
		t.samples, t.late = n, t.first.Load() != 0
		d.divide(n)
		t.lo, t.hi = d.part(n, t.Rank)
		t.predicted = d.forecast(t.Rank)
	}
	return d.part(n, t.Rank)
}

// Stop ends the loop of all peers after the step that this turn commits. One peer may call
// it, or all. If the turn fails the step is tried again, and who wants to stop has to say so
// again.
func (t *Turn) Stop() { t.stop = true }

// Fail says that this peer cannot do its part, for example because it cannot read its data:
// the loop ends here with err, which Err returns, and the others go on without this peer.
// nil is a mistake.
func (t *Turn) Fail(err error) {
	switch {
	case err != nil && t.fail == nil:
		t.fail = err
	case err == nil && t.wrong == nil:
		t.wrong = fmt.Errorf("Turn.Fail(nil) in step %d: call it with the reason", t.step)
	}
}

// Busy says for what the others wait while this peer does something long, as an evaluation,
// until done is called. It is shown where they wait for long, and this peer is not asked to
// make way, however long it takes. Without it a body may take some minutes.
func (t *Turn) Busy(what string) (done func()) {
	t.loop.group.busyWith(what)
	return func() {
		if t.session.turn.Load() == t {
			t.loop.group.busyWith(bodyBusy)
			t.loop.busy.Reset(bodyTerm)
		}
	}
}

const (
	// bodyBusy is what a member says that is in the body of its loop.
	bodyBusy = "in the body of its loop"
	// bodyTerm is how long that is taken for an answer.
	bodyTerm = 5 * time.Minute
)

// busyWith says what this member does, "" for nothing that takes long.
func (g *Group) busyWith(what string) {
	k := g.current()
	k.mu.Lock()
	k.doing.Busy = what
	k.mu.Unlock()
}

// bodyIsLate ends that the body counts as busy by itself.
func (g *Group) bodyIsLate() {
	k := g.current()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.doing.Busy == bodyBusy {
		k.doing.Busy = ""
	}
}

// callBegins notes that a call begins in the turn of the session, if there is one.
func (s *Session) callBegins() {
	t := s.turn.Load()
	if t != nil && t.first.Load() == 0 {
		t.first.CompareAndSwap(0, max(1, int64(time.Since(t.begun))))
	}
}

// callFailed notes the first error of a call in the turn of the session. A call before which
// the step was committed is not one that the commit relied on.
func (s *Session) callFailed(err error) {
	t := s.turn.Load()
	if t == nil || errors.Is(err, collective.ErrConcurrent) { // of another goroutine
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.callErr == nil {
		t.callErr, t.failedAt = err, t.loop.state.Step()
	}
}

// failure returns the error of the first call that failed, and of which step the state was then.
func (t *Turn) failure() (at int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failedAt, t.callErr
}

// computing is how long this peer computed: until its first call, or all of a turn without
// one.
func (t *Turn) computing() time.Duration {
	if first := t.first.Load(); first > 0 {
		return time.Duration(first)
	}
	return t.ended.Sub(t.begun)
}
