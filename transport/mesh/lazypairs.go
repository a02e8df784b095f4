package mesh

import (
	"context"
	"errors"
	"sync"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/internal/wire"
)

// lazyPairs makes the pairs of a view that are not planned. It makes a pair when one of its two
// ranks sends to the other, or waits for a message from it.
//
// The higher rank opens the lanes, as in planned pairs. If both ranks opened lanes at the same
// time, the two sides might use different lanes. So a lower rank that needs the pair requests the
// lanes (requestLanes), and the higher rank opens them. The request also makes a connection, on
// which the higher rank can open the lanes.
//
// The higher rank opens the urgent lane first, and the data lane when the urgent lane is bound. So
// a rank that has the data lane also has the urgent lane, on which the cause of a revocation comes.
// A rank at which the pair has not begun sends the cause by lanePair.endWithCause. If a hello comes
// after the end of the view, the refusal has the cause.
type lazyPairs struct {
	a       *attempt
	life    context.Context // ends when the view is over at this rank
	end     context.CancelFunc
	adopted chan struct{} // closed when t is set
	// holds counts the goroutines that may begin a pair. No goroutine is added after over is set.
	holds sync.WaitGroup

	// mu guards the fields below.
	mu sync.Mutex
	t  *Transport // nil before the attempt has succeeded
	// revoked is the cause with which t is to be revoked as soon as it is there.
	revoked error
	// over is set when the view is over. From then on only goroutines in holds may begin a pair.
	over    bool
	cause   []byte // the encoded cause, once the view is over
	lanes   map[int]*lanePair
	pending map[int]*pendingPair
}

// pendingPair is the state of a pair that is needed at this rank and has not begun. Signals and
// probes never wait for a pair, so they are queued here, within the same limits as in a pair; a
// Send waits for done.
type pendingPair struct {
	signals chan []byte   // to be sent when the pair has begun
	probes  chan int      // to be sent when the pair has begun
	done    chan struct{} // closed when the pair has begun, or err is set
	err     error         // set if the peer has closed the view
}

// newLazyPairs returns the lazyPairs of an attempt.
func newLazyPairs(a *attempt) *lazyPairs {
	d := &lazyPairs{a: a, adopted: make(chan struct{}), lanes: make(map[int]*lanePair), pending: make(map[int]*pendingPair)}
	d.life, d.end = context.WithCancel(a.binder.life.ctx)
	return d
}

// hold lets the caller begin a pair, until the caller calls holds.Done. It returns false if the
// view is over. The end of the view waits for all holders before it ends the lanes that belong to
// no pair, so no lane stays open.
func (l *lazyPairs) hold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.holds.Add(1)
	return true
}

// put adds a lane; the caller has called hold. If the pair has begun, put resets the lane.
// Otherwise the lane replaces an earlier lane of the same number, because its opener has given up
// on the earlier lane.
func (l *lazyPairs) put(rank int, made link) {
	l.mu.Lock()
	old := made
	// A pair that has begun keeps its lanes: frames may be under way on them.
	if l.t == nil || l.t.pairs[rank].Load() == nil {
		s := l.lanes[rank]
		if s == nil {
			s = new(lanePair)
			l.lanes[rank] = s
		}
		// The earlier lane is reset below, without the lock.
		old, s[made.number] = s[made.number], made
		l.beginLocked(rank)
	}
	l.mu.Unlock()
	if old.lane != nil {
		old.end(Stream.Reset)
	}
}

// beginLocked begins a pair if both lanes and the transport are there.
func (l *lazyPairs) beginLocked(rank int) {
	s := l.lanes[rank]
	if l.t == nil || s[dataStream].lane == nil || s[urgentStream].lane == nil {
		return
	}
	pending := l.pending[rank]
	delete(l.lanes, rank)
	delete(l.pending, rank)
	l.t.begin(rank, *s, pending)
	// If err is set, peerClosed has closed done already.
	if pending != nil && pending.err == nil {
		close(pending.done)
	}
}

// adopt is called once, when the attempt has succeeded. It sets the transport, and begins the pairs
// whose lanes are there already. Later pairs begin as their lanes come.
func (l *lazyPairs) adopt(t *Transport) {
	l.mu.Lock()
	l.t = t
	// Lanes of pairs that were not planned may come before Connect has returned.
	for rank := range l.lanes {
		l.beginLocked(rank)
	}
	cause := l.revoked
	l.mu.Unlock()
	close(l.adopted)
	if cause != nil {
		t.Revoke(cause)
	}
}

// revoke revokes the transport, now or as soon as adopt sets it.
func (l *lazyPairs) revoke(cause error) {
	l.mu.Lock()
	t := l.t
	if t == nil && l.revoked == nil {
		l.revoked = cause
	}
	l.mu.Unlock()
	if t != nil {
		t.Revoke(cause)
	}
}

// need returns the pair with a rank if it has begun. Otherwise it starts to make the pair, unless
// that was started before, and returns the pendingPair to wait for. Both results are nil if the
// view is over.
func (l *lazyPairs) need(rank int) (*pair, *pendingPair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.t.pairs[rank].Load(); p != nil {
		return p, nil
	}
	pending := l.pending[rank]
	if pending == nil && !l.over {
		pending = &pendingPair{signals: make(chan []byte, signalQueue), probes: make(chan int, 1), done: make(chan struct{})}
		l.pending[rank] = pending
		// serve waits for make, so no pair begins after the lanes were ended.
		l.holds.Add(1)
		go l.make(rank, pending)
	}
	return nil, pending
}

// make makes the pair with a rank. If it cannot be made, the view is revoked. But if the peer has
// closed the view, only the calls that need the pair fail.
func (l *lazyPairs) make(rank int, pending *pendingPair) {
	defer l.holds.Done()
	err := l.link(rank)
	var over *overError
	switch {
	// After the end of the view the cause is known, and a failure to make the pair adds nothing.
	case err == nil || l.life.Err() != nil:
	case errors.As(err, &over) && len(over.cause) == 0:
		l.peerClosed(rank, pending)
	default:
		l.t.Revoke(l.a.blameFor(rank, err))
	}
}

// peerClosed makes all calls fail that need the pair with a rank. The peer has closed the view, and
// has sent no message to this rank.
func (l *lazyPairs) peerClosed(rank int, pending *pendingPair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending[rank] == pending {
		pending.err = l.a.lost(rank, errors.New("the peer has closed the view"))
		l.t.box.End(rank, pending.err)
		close(pending.done)
	}
}

// link makes the pair with a rank, and returns nil when its lanes are there.
func (l *lazyPairs) link(rank int) error {
	if rank > l.a.self {
		return l.a.binder.life.retry(l.life, func() error { return l.requestLanes(rank) })
	}
	// The order matters: see lazyPairs.
	for _, number := range []int{urgentStream, dataStream} {
		if err := l.open(rank, number); err != nil {
			return err
		}
	}
	return nil
}

// A lane request: the lower rank of a pair asks the higher rank to open the lanes. The lower rank
// opens a stream for it, which begins with hellos as an urgent lane does. The higher rank closes
// the stream when the pair has begun. If the process of the higher rank dies, the stream ends, too,
// so the lower rank notices the death.

// errNoLanes is not final, so the lower rank asks again: the stream of a lane request has ended,
// and the pair has not begun.
var errNoLanes = errors.New("the peer has not opened the streams of the view")

// requestLanes asks a higher rank to open the lanes of the pair. It returns nil if the pair has
// begun.
func (l *lazyPairs) requestLanes(rank int) error {
	s, err := l.a.binder.carrier.Open(l.life, l.a.view.Members[rank].ID, Urgent)
	if err == nil {
		stop := context.AfterFunc(l.life, func() { _ = s.Reset() })
		err = l.awaitLanes(s, rank)
		stop()
		_ = s.Reset()
	}
	// Only the pair tells whether the request has succeeded. The end of the stream does not: the
	// higher rank may have died after it had opened the lanes.
	if l.t.pairs[rank].Load() != nil {
		return nil
	}
	return err
}

// awaitLanes sends the request on s, and returns when the other side has ended s.
func (l *lazyPairs) awaitLanes(s Stream, rank int) error {
	_, err := l.a.sayHello(s, rank)
	if err == nil {
		// The other side sends nothing after its hello: the read ends when the pair has begun, or
		// has failed.
		_, _ = s.Read(make([]byte, 1))
		err = errNoLanes
	}
	return err
}

// answerLaneRequest makes the pair with a lower rank, whose lane request is the stream s with the
// hello g.
func (l *lazyPairs) answerLaneRequest(s Stream, g wire.Greeting) {
	select {
	// The transport of the view must be there before a pair can be made.
	case <-l.adopted:
	case <-l.life.Done():
		_ = s.Reset() // the lower rank asks again, and then gets the cause in a refusal
		return
	}
	p, pending := l.need(int(g.Rank))
	// The view is over at this rank.
	if p == nil && pending == nil {
		l.refuse(s)
		return
	}
	if sendHello(s, l.a.hello) != nil {
		_ = s.Reset()
		return
	}
	// The pair is being made. The stream stays open until then, so that the lower rank waits.
	if pending != nil {
		select {
		case <-pending.done:
		case <-l.life.Done():
		}
	}
	_ = s.Close()
}

// refuse answers the hello on s, which is for this view, when the view is over.
func (l *lazyPairs) refuse(s Stream) {
	l.mu.Lock()
	failed, cause := l.t == nil, l.cause
	l.mu.Unlock()
	if failed || l.a.binder.life.isOver() {
		_ = s.Reset() // this rank may enter the view again, or its mesh closes
		return
	}
	refuse(s, viewOver, cause)
}

// open binds an idle lane to the view, or opens a new one.
func (l *lazyPairs) open(rank, number int) error {
	made, bound := l.a.binder.bind(l.a, rank, number)
	if made != nil {
		select {
		case err := <-bound:
			// A lane that ended while it was idle is replaced by a new one.
			if err == nil || isFinal(err) {
				return err
			}
		case <-l.life.Done():
			l.a.binder.lanes.withdraw(l.a, made, true)
			return context.Cause(l.life)
		}
	}
	return l.a.binder.dial(l.life, l.a, rank, number)
}

// serve waits until the transport has failed. Then it ends the attempts to make pairs, and ends the
// lanes of pairs that have not begun, with the cause.
func (l *lazyPairs) serve() {
	<-l.t.box.Failed()
	dead := false
	select {
	case <-l.t.meshClosed: // nothing is sent to peers any more
		dead = true
	default:
	}
	last, cause := wire.Header{Kind: wire.Bye}, []byte(nil)
	// The error is compared by identity: Close of this rank fails the box with exactly this
	// value.
	if err := l.t.box.Cause(); err != l.t.closedErr {
		last.Kind, cause = wire.Revoke, transport.EncodeCause(l.a.self, err)
	}
	l.close(cause)
	l.holds.Wait()
	for _, s := range l.lanes {
		if dead {
			s.end(Stream.Reset)
		} else {
			s.endWithCause(last, cause)
		}
	}
}

// close notes that the view is over, and why.
func (l *lazyPairs) close(cause []byte) {
	l.mu.Lock()
	l.over, l.cause = true, cause
	l.mu.Unlock()
	l.end()
}

// abandon ends the lanes that were gathered for an attempt that failed with err.
func (l *lazyPairs) abandon(err error) {
	cause := transport.EncodeCause(l.a.self, err)
	l.close(nil)
	l.holds.Wait()
	for _, s := range l.lanes {
		s.endWithCause(wire.Header{Kind: wire.Revoke}, cause)
	}
}

// retire makes the mesh forget the view, except for the cause of its end. It is called when all
// pairs have left the view. Before that a peer may still request a pair that has begun at this end
// and not yet at the peer.
func (l *lazyPairs) retire() { l.a.binder.views.retire(l.a, l.cause) }
