package mesh

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mailbox"
)

// demand makes the pairs of a view that are not planned. It makes a pair when one of its two ranks sends to
// the other, or waits for a message from it.
//
// The higher rank opens the lanes, as in planned pairs. If both ranks opened lanes at the same time, the two
// sides might use different ones. So a lower rank that needs the pair knocks (knock.go), and the higher rank
// opens the lanes. The knock also makes the connection for them, which the carrier may dial in either
// direction.
//
// The higher rank opens the urgent lane first, and the data lane when the urgent lane is bound. So a rank that
// has the data lane can be told on the urgent lane why the view ends. Also a rank at which the pair has not
// begun tells the cause, by couple.farewell. A hello that comes later is refused, with the cause.
type demand struct {
	a     *attempt
	life  context.Context // ends when the view is over at this rank
	end   context.CancelFunc
	begun chan struct{}  // closed when t is set
	holds sync.WaitGroup // the goroutines that may begin a pair; added to before over is set

	mu      sync.Mutex
	t       *Transport // nil before the attempt has succeeded
	revoked error      // why t is to be revoked as soon as it is there
	over    bool       // the view is over: only goroutines that are in holds may begin a pair
	told    []byte     // the encoded cause, once the view is over
	spare   map[int]*couple
	making  map[int]*making
}

// making is the state of a pair that is needed at this rank and has not begun.
type making struct {
	signals chan []byte   // to be sent when the pair has begun
	probes  chan int      // to be sent when the pair has begun
	done    chan struct{} // closed when the pair has begun, or err is set
	err     error         // set if the peer has closed
}

// newDemand returns the demand of an attempt.
func newDemand(a *attempt) *demand {
	d := &demand{a: a, begun: make(chan struct{}), spare: make(map[int]*couple), making: make(map[int]*making)}
	d.life, d.end = context.WithCancel(a.binder.life.ctx)
	return d
}

// hold lets the caller begin a pair, until the caller calls holds.Done. It returns false if the view is over.
func (d *demand) hold() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return false
	}
	d.holds.Add(1)
	return true
}

// put adds a lane; the caller has called hold. If the pair has begun, the lane is reset. Otherwise it replaces
// an earlier lane of the same number, as its opener has given up on that one.
func (d *demand) put(rank int, l link) {
	d.mu.Lock()
	old := l
	if d.t == nil || d.t.pairs[rank].Load() == nil {
		s := d.spare[rank]
		if s == nil {
			s = new(couple)
			d.spare[rank] = s
		}
		old, s[l.number] = s[l.number], l
		d.beginLocked(rank)
	}
	d.mu.Unlock()
	if old.lane != nil {
		old.end(Stream.Reset)
	}
}

// beginLocked begins a pair if both lanes and the transport are there.
func (d *demand) beginLocked(rank int) {
	s := d.spare[rank]
	if d.t == nil || s[dataStream].lane == nil || s[urgentStream].lane == nil {
		return
	}
	mk := d.making[rank]
	delete(d.spare, rank)
	delete(d.making, rank)
	d.t.begin(rank, *s, mk)
	if mk != nil && mk.err == nil {
		close(mk.done)
	}
}

// adopt sets the transport, and begins the pairs whose lanes are there already. Later pairs begin as their lanes
// come.
func (d *demand) adopt(t *Transport) {
	d.mu.Lock()
	d.t = t
	for rank := range d.spare {
		d.beginLocked(rank)
	}
	cause := d.revoked
	d.mu.Unlock()
	close(d.begun)
	if cause != nil {
		t.Revoke(cause)
	}
}

// revoke revokes the transport, now or as soon as it is there.
func (d *demand) revoke(cause error) {
	d.mu.Lock()
	t := d.t
	if t == nil && d.revoked == nil {
		d.revoked = cause
	}
	d.mu.Unlock()
	if t != nil {
		t.Revoke(cause)
	}
}

// need returns the pair with a rank if it has begun. Otherwise it starts to make the pair, unless that was
// started before, and returns the making to wait for. Both results are nil if the view is over.
func (d *demand) need(rank int) (*pair, *making) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.t.pairs[rank].Load(); p != nil {
		return p, nil
	}
	mk := d.making[rank]
	if mk == nil && !d.over {
		mk = &making{signals: make(chan []byte, signalQueue), probes: make(chan int, 1), done: make(chan struct{})}
		d.making[rank] = mk
		d.holds.Add(1)
		go d.make(rank, mk)
	}
	return nil, mk
}

// make makes the pair with a rank. If it cannot be made, the view is revoked. But if the peer has closed the
// view, only the calls that need the pair fail.
func (d *demand) make(rank int, mk *making) {
	defer d.holds.Done()
	err := d.link(rank)
	var over *overError
	switch {
	case err == nil || d.life.Err() != nil:
	case errors.As(err, &over) && len(over.cause) == 0:
		d.depart(rank, mk)
	default:
		d.t.Revoke(d.a.blameFor(rank, err))
	}
}

// depart notes that the peer has closed the view and has sent nothing.
func (d *demand) depart(rank int, mk *making) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.making[rank] == mk {
		mk.err = d.a.lost(rank, errors.New("closed"))
		d.t.box.End(rank, mk.err)
		close(mk.done)
	}
}

// link makes the pair with a rank, and returns nil when its lanes are there.
func (d *demand) link(rank int) error {
	if rank > d.a.self {
		return d.a.binder.life.retry(d.life, func() error { return d.knock(rank) })
	}
	for _, number := range []int{urgentStream, dataStream} {
		if err := d.open(rank, number); err != nil {
			return err
		}
	}
	return nil
}

// open binds a resting lane to the view, or opens a new one.
func (d *demand) open(rank, number int) error {
	l, bound := d.a.binder.bind(d.a, rank, number)
	if l != nil {
		select {
		case err := <-bound:
			if err == nil || isFinal(err) {
				return err
			}
		case <-d.life.Done():
			d.a.binder.lanes.withdraw(d.a, l, true)
			return context.Cause(d.life)
		}
	}
	return d.a.binder.dial(d.life, d.a, rank, number)
}

// serve waits until the transport has failed. Then it ends the making of pairs, and ends the lanes of pairs
// that have not begun, with a farewell.
func (d *demand) serve() {
	<-d.t.box.Failed()
	dead := false
	select {
	case <-d.t.host: // nothing is sent to peers any more
		dead = true
	default:
	}
	last, cause := wire.Header{Kind: wire.Bye}, []byte(nil)
	if err := d.t.box.Cause(); err != d.t.ended {
		last.Kind, cause = wire.Revoke, transport.EncodeCause(d.a.self, err)
	}
	d.close(cause)
	d.holds.Wait()
	for _, s := range d.spare {
		if dead {
			s.end(Stream.Reset)
		} else {
			s.farewell(last, cause)
		}
	}
}

// close notes that the view is over, and why.
func (d *demand) close(cause []byte) {
	d.mu.Lock()
	d.over, d.told = true, cause
	d.mu.Unlock()
	d.end()
}

// abandon ends the lanes that were gathered for an attempt that failed with err.
func (d *demand) abandon(err error) {
	cause := transport.EncodeCause(d.a.self, err)
	d.close(nil)
	d.holds.Wait()
	for _, s := range d.spare {
		s.farewell(wire.Header{Kind: wire.Revoke}, cause)
	}
}

// retire makes the mesh forget the view, except for why it is over. It is called when all pairs have left the
// view. Before that a peer may still knock for a pair that has begun at this end and not yet at the peer.
func (d *demand) retire() { d.a.binder.views.retire(d.a, d.told) }

// farewell tells the peer the cause and ends the lanes of a pair that has not begun at this end; it may have
// begun at the peer.
func (s *couple) farewell(last wire.Header, cause []byte) {
	if l := s[urgentStream]; l.lane != nil {
		if l.writeWithin(urgentTime, last, cause) == nil {
			_ = l.writeWithin(urgentTime, wire.Header{Kind: wire.End}, nil)
		}
		l.end(Stream.Close)
		s[urgentStream] = link{}
	}
	s.end(Stream.Reset)
}

// end ends the lanes that are there. The parameter how is the method that ends a stream.
func (s *couple) end(how func(Stream) error) {
	for _, l := range s {
		if l.lane != nil {
			l.end(how)
		}
	}
}

// pairWith returns the pair with a rank. If there is none it waits until one is made. The caller revokes the
// view with the error.
func (t *Transport) pairWith(ctx context.Context, rank int) (*pair, error) {
	p, mk := t.demand.need(rank)
	switch {
	case p != nil:
		return p, nil
	case mk == nil:
		<-t.box.Failed()
		return nil, t.box.Cause()
	}
	select {
	case <-mk.done:
		if mk.err != nil {
			return nil, mk.err
		}
		return t.pairs[rank].Load(), nil
	case <-ctx.Done():
		return nil, mailbox.Cancelled(ctx, t.self, fmt.Sprintf("send to rank %d", rank))
	case <-t.box.Failed():
		return nil, t.box.Cause()
	case <-t.host:
		return nil, errClosed()
	}
}
