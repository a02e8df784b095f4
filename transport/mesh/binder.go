package mesh

import (
	"context"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/wire"
)

// helloTime is how long a member may take to say hello on a stream that it opened, and to
// agree on a better path. Both take long where many peers of one host connect at once. A side
// that gives up too early breaks a session that has already begun at the other side.
const helloTime = time.Minute

// binder binds lanes to views: lanes that are idle, new lanes that it opens, and lanes that peers
// open. It reads each lane as long as the lane lasts.
//
// A goroutine that binds a lane holds the view open meanwhile (lazyPairs.hold), or is one of the
// dials for which Connect waits. So no lane is added to a view whose streams were ended already.
type binder struct {
	// cfg is the configuration of the mesh.
	cfg     *Config
	carrier Carrier
	life    *lifetime
	views   *viewTable
	lanes   *lanes
}

// accept handles a stream of frames that a member opened. It gives the stream to the attempt of its
// view, for which it waits if necessary, or refuses the stream.
func (b *binder) accept(k Kind, s Stream) {
	if err := s.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		_ = s.Reset()
		return
	}
	// The hello is limited in length and time: the peer has proved its ID, but not that it is a
	// member of this view.
	g, err := readHello(s)
	if err != nil {
		_ = s.Reset()
		return
	}
	a := b.views.attemptFor(s, s.Peer(), g)
	switch {
	case a == nil:
		return
	case int(g.Rank) < a.self && k == Urgent:
		a.lazy.answerLaneRequest(s, g)
		return
	}
	l, ok := b.receive(a, g, int(k-Data), s)
	if ok {
		b.serve(a, l.lane)
	}
}

// receive makes the stream s, on which the hello g came, a lane of the view of a. It returns false
// if it has ended the stream instead.
func (b *binder) receive(a *attempt, g wire.Greeting, number int, s Stream) (link, bool) {
	if !a.lazy.hold() {
		a.lazy.refuse(s)
		return link{}, false
	}
	defer a.lazy.holds.Done()
	// The higher rank opens the lanes of a pair, so a hello of a lower rank breaks the protocol.
	if int(g.Rank) < a.self {
		refuse(s, refused, nil)
		return link{}, false
	}
	stop := context.AfterFunc(a.lazy.life, func() { _ = s.Reset() }) // as a write may be stuck
	l, err := a.admit(g, number, s)
	ended := !stop()
	if ended && err == nil {
		_ = l.raw.Reset()
	}
	if ended || err != nil {
		_ = s.Reset()
		return link{}, false
	}
	// The lane is known to the mesh before its pair can begin, so Close finds it.
	b.lanes.add(l.lane)
	a.put(int(g.Rank), l)
	return l, true
}

// dial opens a lane to a rank, adds it to the attempt, and starts its reader. It tries until it
// succeeds, the error is final, or ctx ends.
func (b *binder) dial(ctx context.Context, a *attempt, rank, number int) error {
	return b.life.retry(ctx, func() error {
		l, err := b.join(ctx, a, rank, number)
		if err != nil {
			a.noteError(rank, err)
			return err
		}
		// The mesh closes: the goroutine below would outlive it.
		if !b.life.begin() {
			_ = l.raw.Reset()
			return errClosed()
		}
		b.lanes.add(l.lane)
		a.put(rank, l)
		go func() {
			defer b.life.working.Done()
			b.serve(a, l.lane)
		}()
		return nil
	})
}

// join opens one stream, says hello on it, and moves to a better path if there is a better one.
func (b *binder) join(ctx context.Context, a *attempt, rank, number int) (link, error) {
	s, err := b.carrier.Open(ctx, a.view.Members[rank].ID, Data+Kind(number))
	if err != nil {
		return link{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	// The answer may take long: the peer answers when it has entered the view.
	g, err := a.sayHello(s, rank)
	var l link
	if err == nil {
		l, err = upgrade(ctx, s, g, number, true)
	}
	if !stop() && err == nil {
		_ = l.raw.Reset()
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = s.Reset()
		return link{}, err
	}
	return l, nil
}

// upgrade returns the link over the best stream that the paths of both sides allow. That stream may
// replace s. The other side has sent the hello g on s.
func upgrade(ctx context.Context, s Stream, g wire.Greeting, number int, opener bool) (link, error) {
	peer := s.Peer()
	// The opener and the other side call Upgrade at the same point of the stream.
	if u, ok := s.(Upgrader); ok {
		var err error
		if s, err = u.Upgrade(ctx, opener); err != nil {
			return link{}, err
		}
	}
	return linkOver(newLane(s, peer, number), g), nil
}

// bind requests that an idle lane be bound to the view of a. It returns the lane and a channel of
// the result, or nil if no lane is idle.
func (b *binder) bind(a *attempt, rank, number int) (*lane, <-chan error) {
	l, asked, idle := b.lanes.requestBind(a, rank, number)
	switch {
	case l == nil:
		return nil, nil
	case idle:
		l.sayHello(a.hello)
	// The lane is busy in an earlier view. A new lane is there sooner.
	case b.lanes.withdraw(a, l, false):
		return nil, nil
	}
	return l, asked.bound
}

// serve reads a lane until the lane ends, one view after the other. The lane has been added, and is
// bound to the view of a. No other goroutine reads its stream, so only this goroutine sees the lane
// end. Therefore it also handles the request that an attempt has left on the lane.
func (b *binder) serve(a *attempt, l *lane) {
	for a != nil && l.readView(a) {
		a = b.awaitBind(l)
	}
	if asked := b.lanes.drop(l); asked != nil {
		asked.fail(l.number, errEnded)
	}
}

// awaitBind waits until a lane is bound to another view. It returns the attempt that enters that
// view, or nil if the lane has ended.
func (b *binder) awaitBind(l *lane) *attempt {
	asked, ok := b.lanes.setIdle(l)
	// takeBye may have set a deadline in the past to end a Send.
	if !ok || !isReusable(l.raw.Path()) || l.raw.SetWriteDeadline(time.Time{}) != nil {
		_ = l.raw.Close() // nothing is lost: both sides have read all frames
		return nil
	}
	if asked != nil {
		l.sayHello(asked.a.hello)
	}
	g, err := readHello(unbuffered{l.stream})
	if err == nil && l.buffered() > 0 {
		err = errProtocol // nothing may follow the hello before it is answered
	}
	// This end has requested the lane, so the hello that came is the answer to its own hello.
	if asked = b.lanes.setBusy(l); asked != nil {
		return asked.answered(l, g, err)
	}
	var a *attempt
	if err == nil {
		a = b.views.attemptFor(l.raw, l.peer, g)
		if a != nil && a.rebind(l, g) {
			return a
		}
		if a == nil {
			return nil
		}
	}
	_ = l.raw.Reset()
	return nil
}

// isReusable reports whether a lane with path p is kept for later views. A lane is not kept if a
// new stream may get a better path: if p leads over a relay, or if p shares a libp2p connection
// because the lane could not get a connection of its own.
func isReusable(p event.Path) bool { return p.Kind != "relay" && (p.Kind != "p2p" || p.Why == "") }
