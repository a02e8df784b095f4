package mesh

import (
	"context"
	"errors"

	"github.com/elrun/elrun/transport/internal/wire"
)

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
