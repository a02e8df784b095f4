package mesh

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/wire"
)

// lane is a stream of frames with another process, for as long as both keep it. It is bound to
// one view at a time: by a hello in both directions, which the frames of the view follow, in each
// direction up to the one that ends them (Bye or End). When both sides have ended them it rests,
// until one of them says hello for a later view. A lane that was left in the middle of a frame is
// reset, and the next view that needs one opens another. One goroutine reads it all the time.
type lane struct {
	*stream
	peer   elastic.ID
	number int        // dataStream or urgentStream
	pair   chan *pair // of one element: who has it in the present view; closed if that does not begin

	// Guarded by the mu of lanes.
	resting bool     // both sides have ended the view
	left    bool     // this side has, and the other one perhaps never will
	asked   *request // for the next view
}

// request is what an attempt has asked of a lane.
type request struct {
	a     *attempt
	rank  int        // of the peer there
	bound chan error // of one element: what came of it, if the pair is not planned; else nil
}

// newLane returns the lane over a stream on which the hellos have been exchanged.
func newLane(s Stream, peer elastic.ID, number int) *lane {
	return &lane{stream: newStream(s), peer: peer, number: number, pair: make(chan *pair, 1)}
}

// lanes are those of a process, at most one of a number with each peer. Others that may exist for a
// while are not used again.
type lanes struct {
	mu     sync.Mutex
	closed bool
	all    map[berth]*lane
}

// berth is the place of a lane.
type berth struct {
	peer   elastic.ID
	number int
}

func newLanes() *lanes { return &lanes{all: make(map[berth]*lane)} }

// add makes l the lane of its berth, in place of one that is not used any more. It is called before a view
// gets the lane: whoever enters the next view looks for it here as soon as this one is entered.
func (s *lanes) add(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := berth{l.peer, l.number}
	if old := s.all[at]; old != nil {
		s.discardLocked(old)
	}
	s.all[at] = l
}

// drop forgets a lane that has ended, and returns what was asked of it, if anything was.
func (s *lanes) drop(l *lane) (asked *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := (berth{l.peer, l.number}); s.all[at] == l {
		delete(s.all, at)
	}
	l.resting = false
	asked, l.asked = l.asked, nil
	return asked
}

// discardLocked ends a lane that nobody wants any more: now, or when this side has ended its view.
func (s *lanes) discardLocked(l *lane) {
	delete(s.all, berth{l.peer, l.number})
	if l.resting || l.left {
		_ = l.raw.Reset()
	}
}

// leave notes that this side has ended the view on a lane. A lane that nobody wants any more is reset, as
// a peer that is cut off never ends the view, and its reader would wait for ever.
func (s *lanes) leave(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.left = true
	if s.closed || s.all[berth{l.peer, l.number}] != l {
		_ = l.raw.Reset()
	}
}

// keep ends the lanes with those who are not members of v.
func (s *lanes) keep(v elastic.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, l := range s.all {
		if v.Rank(at.peer) < 0 {
			s.discardLocked(l)
		}
	}
}

// close ends all lanes: those in a view when this side has ended it.
func (s *lanes) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, l := range s.all {
		s.discardLocked(l)
	}
}

// ask has a lane with a rank of a be bound to its view. If it rests the caller says hello on it; if it
// is still in another view its reader does when that is over. It returns nil where there is none.
func (s *lanes) ask(a *attempt, rank, number int) (l *lane, asked *request, rests bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l = s.all[berth{a.view.Members[rank].ID, number}]
	if l == nil || l.asked != nil {
		return nil, nil, false
	}
	asked = &request{a: a, rank: rank}
	if !a.planned[rank] {
		asked.bound = make(chan error, 1)
	}
	l.asked = asked
	return l, asked, l.resting
}

// withdraw takes back what a has asked of a lane, and reports whether it had come to nothing. A lane
// on which hello was said is ended if the attempt is over.
func (s *lanes) withdraw(a *attempt, l *lane, over bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.asked == nil || l.asked.a != a:
		return false
	case !l.resting:
		l.asked = nil
		return true
	case over:
		_ = l.raw.Reset()
	}
	return false
}

// rest notes that the view of a lane is over, and returns what was asked of it. It returns false if the lane
// is not used again.
func (s *lanes) rest(l *lane) (asked *request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.all[berth{l.peer, l.number}] != l {
		return nil, false
	}
	l.resting = true
	return l.asked, true
}

// wake notes that a hello has come on a lane that has rested, and returns what was asked of it.
func (s *lanes) wake(l *lane) (asked *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.resting, l.left = false, false
	asked, l.asked = l.asked, nil
	return asked
}

// serve reads a lane, which has been added and given to a, until it ends: one view after the other.
func (m *Mesh) serve(a *attempt, l *lane) {
	for a != nil && l.follow(a) {
		a = m.rest(l)
	}
	if asked := m.lanes.drop(l); asked != nil {
		m.unanswered(asked, l.number, errEnded)
	}
}

// errEnded: the lane ended before it was bound to the view.
var errEnded = errors.New("the lane has ended")

// follow reads a lane while it is bound to the view of a. It returns false if the lane has ended, and
// true if both sides have ended the view on it, so that it may be bound again.
func (l *lane) follow(a *attempt) bool {
	var first urgentFrame
	if l.number == urgentStream {
		first = l.listen(a)
	}
	p := <-l.pair
	if p == nil {
		return false // who closed it has ended the lane
	}
	whole := false
	if l.number == urgentStream {
		whole = p.readUrgent(first)
	} else {
		whole = p.readData()
	}
	if !whole {
		_ = l.raw.Reset()
	}
	return whole
}

// rest waits until a lane is bound to another view, and gives it to the attempt to enter that. It
// returns nil if the lane has ended.
func (m *Mesh) rest(l *lane) *attempt {
	asked, ok := m.lanes.rest(l)
	if !ok || !lasts(l.raw.Path()) || l.raw.SetWriteDeadline(time.Time{}) != nil {
		_ = l.raw.Close() // both sides have read all of it
		return nil
	}
	if asked != nil {
		m.greet(asked.a, l)
	}
	g, err := readHello(unbuffered{l.stream})
	if err == nil && l.buffered() > 0 {
		err = errProtocol // nothing may follow before it was answered
	}
	if asked = m.lanes.wake(l); asked != nil {
		return m.bound(asked, l, g, err)
	}
	var a *attempt
	if err == nil {
		a = m.invite(l.raw, l.peer, g)
		if a != nil && m.rebind(a, l, g) {
			return a
		}
		if a == nil {
			return nil
		}
	}
	_ = l.raw.Reset()
	return nil
}

// rebind answers the hello g on a lane that has rested. It returns false if the lane is to end.
func (m *Mesh) rebind(a *attempt, l *lane, g wire.Greeting) bool {
	if !a.demand.hold() {
		a.demand.refuse(l.raw)
		return false
	}
	defer a.demand.holds.Done()
	if int(g.Rank) < a.self {
		return false
	}
	stop := context.AfterFunc(a.demand.life, func() { _ = l.raw.Reset() }) // the write may be stuck
	if err := l.writeHello(m.greeting(a)); !stop() || err != nil {
		return false
	}
	l.pair = make(chan *pair, 1)
	a.put(int(g.Rank), linkOver(l, g))
	return true
}

// lasts reports whether a new stream would take no better way than one of that path: a relay, and what
// stands in for a connection of its own, are not kept.
func lasts(p event.Path) bool { return p.Kind != "relay" && (p.Kind != "p2p" || p.Why == "") }

// greet says hello on a lane that rests. Its reader finds out if that fails, or has the answer, and so may
// others who write, before this returns: so it takes its turn.
func (m *Mesh) greet(a *attempt, l *lane) {
	at := l.writers.join(math.MaxInt32)
	<-at.turn
	defer l.writers.leave(at)
	if l.writeHello(m.greeting(a)) != nil {
		_ = l.raw.Reset()
	}
}

// writeHello says hello on a lane that has rested.
func (l *lane) writeHello(g wire.Greeting) error {
	return errors.Join(
		l.raw.SetWriteDeadline(time.Now().Add(helloTime)),
		sendHello(l.raw, g),
		l.raw.SetWriteDeadline(time.Time{}))
}

// bound takes in the answer to the hello that was asked for, or why there is none, and returns the attempt to
// which the lane is bound. A hello for another view is an error: both sides have said hello at once, or the
// lane's end did not know what its process knows.
func (m *Mesh) bound(asked *request, l *lane, g wire.Greeting, err error) *attempt {
	a := asked.a
	if err == nil && m.check(a, g, asked.rank) != nil {
		err = errors.New("two hellos have crossed")
	}
	if err == nil && asked.bound != nil {
		if !a.demand.hold() {
			err = errEnded // who has asked does not wait any more
		} else {
			defer a.demand.holds.Done()
		}
	}
	if err != nil {
		_ = l.raw.Reset()
		m.unanswered(asked, l.number, err)
		return nil
	}
	l.pair = make(chan *pair, 1)
	a.put(asked.rank, linkOver(l, g))
	if asked.bound != nil {
		asked.bound <- nil
	}
	return a
}

// unanswered takes in that nothing came of what was asked of a lane. A planned pair gets a new stream, or the
// attempt fails if the error is final.
func (m *Mesh) unanswered(asked *request, number int, err error) {
	a := asked.a
	switch {
	case asked.bound != nil:
		asked.bound <- err
	case !isFinal(err):
		m.dialOne(a, asked.rank, number)
	case a.ctx.Err() == nil && m.life.Err() == nil:
		a.fail(a.blameFor(asked.rank, err))
	}
}

// bind has a lane that rests be bound to the view, and returns what tells of the answer; nil if none rests.
func (m *Mesh) bind(a *attempt, rank, number int) (*lane, <-chan error) {
	l, asked, rests := m.lanes.ask(a, rank, number)
	switch {
	case l == nil:
		return nil, nil
	case rests:
		m.greet(a, l)
	case m.lanes.withdraw(a, l, false):
		return nil, nil
	}
	return l, asked.bound
}
