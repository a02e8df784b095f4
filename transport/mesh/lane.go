package mesh

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
)

// lane is a stream of frames with another process. It outlives views, and is bound to one view at a
// time. A hello in each direction binds the lane. The frames of the view follow, and in each
// direction the last frame is Bye or End. When both sides have sent their last frame, the lane is
// idle until one side says hello for a later view. If a view ends in the middle of a frame, the
// lane is reset, and the next view opens a new lane. One goroutine reads the lane all the time
// (binder.serve).
type lane struct {
	*stream
	peer   elastic.ID
	number int // dataStream or urgentStream
	// pair passes to the reader the pair that uses the lane in the present view. It has room for
	// one pair, and is closed if the view does not begin.
	pair chan *pair

	// Guarded by lanes.mu.
	idle      bool // both sides have ended the view
	viewEnded bool // this side has ended the view; the other side may never do so
	// request is the request to bind the lane to the next view, or nil.
	request *bindRequest
}

// bindRequest is the request of an attempt that a lane be bound to its view. A lane has at most one
// request. Either the reader of the lane takes it from the lane, when the answer or an error has
// come (setBusy, drop), or the attempt does, when it does not need the lane any more (withdraw).
// Both hold lanes.mu.
type bindRequest struct {
	a *attempt
	// rank is the rank of the peer in that view.
	rank int
	// bound passes the result. It has room for one. It is nil if the pair is planned.
	bound chan error
}

// newLane returns the lane over a stream on which the hellos have been exchanged.
func newLane(s Stream, peer elastic.ID, number int) *lane {
	return &lane{stream: newStream(s), peer: peer, number: number, pair: make(chan *pair, 1)}
}

// readView reads a lane while the lane is bound to the view of a. First it waits on l.pair until
// the pair has begun or the attempt has failed. It returns true if both sides have ended the view
// in good order, so that the lane may be bound again, and false if the lane has ended.
func (l *lane) readView(a *attempt) bool {
	var first urgentFrame
	if l.number == urgentStream {
		first = l.listen(a)
	}
	p := <-l.pair
	if p == nil {
		return false // link.end has closed the channel and ended the lane
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

// revokedTime is how long an attempt goes on after its view was revoked. Meanwhile it still accepts
// streams: if a stream failed, a peer that has begun the view would blame this rank.
const revokedTime = time.Second

// listen reads the first frame of an urgent lane, which may come while other streams of the view
// are missing. A peer that has all of its streams may have revoked the view already. Then listen
// ends the attempt.
func (l *lane) listen(a *attempt) urgentFrame {
	first := l.nextUrgent()
	if first.err == nil && first.Kind == wire.Revoke {
		timer := time.NewTimer(revokedTime)
		defer timer.Stop()
		select {
		case <-a.done:
		case <-timer.C:
		}
		a.revoke(transport.DecodeCause(a.view.Rank(l.peer), first.body))
	}
	return first
}

// sayHello says hello on an idle lane. The reader of the lane gets the answer, or an error. The
// answer may come before sayHello returns, and then other goroutines may write on the lane. So
// sayHello takes the writer's turn.
func (l *lane) sayHello(g wire.Greeting) {
	at := l.writers.enqueue(math.MaxInt32)
	<-at.turn
	defer l.writers.release(at)
	if l.writeHello(g) != nil {
		_ = l.raw.Reset()
	}
}

// writeHello says hello on an idle lane. The write has a deadline, because the buffers of a stopped
// peer may be full.
func (l *lane) writeHello(g wire.Greeting) error {
	return errors.Join(
		l.raw.SetWriteDeadline(time.Now().Add(helloTime)),
		sendHello(l.raw, g),
		l.raw.SetWriteDeadline(time.Time{}))
}

// errEnded: the lane ended before it was bound to the view.
var errEnded = errors.New("the lane has ended")

// answered handles the answer g to the hello of a request, or the error that came instead. It
// returns the attempt to which the lane is bound, or nil. A hello for another view is an error: the
// two sides have said hello at the same time for different views.
func (b *bindRequest) answered(l *lane, g wire.Greeting, err error) *attempt {
	a := b.a
	if err == nil && a.check(g, b.rank) != nil {
		err = errors.New("two hellos have crossed")
	}
	if err == nil && b.bound != nil {
		if !a.lazy.hold() {
			err = errEnded // the view is over, so no goroutine waits for the lane any more
		} else {
			defer a.lazy.holds.Done()
		}
	}
	if err != nil {
		_ = l.raw.Reset()
		b.fail(l.number, err)
		return nil
	}
	l.pair = make(chan *pair, 1)
	a.put(b.rank, linkOver(l, g))
	if b.bound != nil {
		b.bound <- nil
	}
	return a
}

// fail handles a request for a lane that has failed with err. For a planned pair it opens a new
// stream, or fails the attempt if err is final. For another pair it passes err to the goroutine
// that makes the pair.
func (b *bindRequest) fail(number int, err error) {
	a := b.a
	switch {
	case b.bound != nil:
		b.bound <- err
	case !isFinal(err):
		a.dialOne(b.rank, number)
	case a.ctx.Err() == nil && !a.binder.life.isOver():
		a.fail(a.blameFor(b.rank, err))
	}
}

// lanes has the lanes of a process: at most one of each number with each peer. A lane that was
// replaced is not in the map. It may exist until its view ends, and is not used again. Streams are
// reset with the lock held, because a reset does not block.
type lanes struct {
	// mu guards the fields below.
	mu     sync.Mutex
	closed bool
	all    map[laneKey]*lane
	// traffic has its own lock.
	traffic traffic
}

// laneKey is the key of a lane in lanes.
type laneKey struct {
	peer   elastic.ID
	number int
}

func newLanes() *lanes { return &lanes{all: make(map[laneKey]*lane)} }

// add stores l, and discards the lane that was stored for the same peer and number before. It is
// called before a view gets the lane: as soon as the view is entered the next view may begin, and
// its attempt looks for the lane here.
func (ls *lanes) add(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	at := laneKey{l.peer, l.number}
	if old := ls.all[at]; old != nil {
		ls.discardLocked(old)
	}
	ls.all[at] = l
	l.count = ls.traffic.of(l.raw.Path().Kind)
}

// drop forgets a lane that has ended, and returns its request, or nil if there is none.
func (ls *lanes) drop(l *lane) (asked *bindRequest) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if at := (laneKey{l.peer, l.number}); ls.all[at] == l {
		delete(ls.all, at)
	}
	l.idle = false
	asked, l.request = l.request, nil
	return asked
}

// discardLocked forgets a lane that is not needed any more. It ends the lane now, or lets endView
// end it if this side has not ended the view yet.
func (ls *lanes) discardLocked(l *lane) {
	delete(ls.all, laneKey{l.peer, l.number})
	if l.idle || l.viewEnded {
		_ = l.raw.Reset()
	}
}

// endView notes that this side has ended the view on a lane. It resets the lane if the lane was
// discarded: a peer that is cut off never ends the view, so the reader of the lane would wait for
// ever.
func (ls *lanes) endView(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.viewEnded = true
	if ls.closed || ls.all[laneKey{l.peer, l.number}] != l {
		_ = l.raw.Reset()
	}
}

// retain ends the lanes with peers that are not members of v.
func (ls *lanes) retain(v elastic.View) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for at, l := range ls.all {
		if v.Rank(at.peer) < 0 {
			ls.discardLocked(l)
		}
	}
}

// close ends all lanes; a lane that is in use in a view ends when this side has ended the view.
func (ls *lanes) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.all {
		ls.discardLocked(l)
	}
}

// requestBind requests that a lane with a rank be bound to the view of a. If idle is true, the
// lane is idle, and the caller says hello on it. Otherwise the lane is still in another view, and
// its reader says hello when that view is over. requestBind returns nil if there is no such lane,
// or if the lane has another request.
func (ls *lanes) requestBind(a *attempt, rank, number int) (l *lane, asked *bindRequest, idle bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l = ls.all[laneKey{a.view.Members[rank].ID, number}]
	if l == nil || l.request != nil {
		return nil, nil, false
	}
	asked = &bindRequest{a: a, rank: rank}
	if !a.planned[rank] {
		asked.bound = make(chan error, 1)
	}
	l.request = asked
	return l, asked, l.idle
}

// withdraw takes back the request of a for a lane. It returns true if no hello was sent for the
// request yet. If a hello was sent, withdraw resets the lane if over is true, and otherwise the
// request stays.
func (ls *lanes) withdraw(a *attempt, l *lane, over bool) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case l.request == nil || l.request.a != a:
		return false
	case !l.idle:
		l.request = nil
		return true
	// A hello that was sent cannot be taken back: the peer may answer it at any time.
	case over:
		_ = l.raw.Reset()
	}
	return false
}

// setIdle notes that the view of a lane is over, and returns the request for the lane, if any. It
// returns false if the lane must not be used again.
func (ls *lanes) setIdle(l *lane) (asked *bindRequest, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed || ls.all[laneKey{l.peer, l.number}] != l {
		return nil, false
	}
	l.idle = true
	return l.request, true
}

// setBusy notes that an idle lane has got a hello, or has failed. It returns the request for the
// lane, if any.
func (ls *lanes) setBusy(l *lane) (asked *bindRequest) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.idle, l.viewEnded = false, false
	asked, l.request = l.request, nil
	return asked
}
