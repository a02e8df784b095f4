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

// demand makes the pairs of a view that are not planned, when one of the two ranks sends to the other one or
// waits for a message of it.
//
// The higher rank opens the lanes, as in planned pairs: so two that need each other at once do not open two
// lanes, of which each side would use another one. A lower rank knocks (knock.go), and the higher one opens
// them. The knock makes the connection below, in whatever direction that is possible.
//
// The urgent lane is opened first, and the data lane when that is bound. So who has the data lane can be told
// on the urgent one why the view ends, also by a rank that has not begun the pair when that happens: it says
// farewell. A hello that comes later is refused, with the cause.
type demand struct {
	m     *Mesh // nil in tests in which all pairs are planned
	a     *attempt
	life  context.Context // of the view at this rank
	end   context.CancelFunc
	begun chan struct{}  // closed when t is set
	holds sync.WaitGroup // who may begin a pair; added to before over is set

	mu      sync.Mutex
	t       *Transport // nil before the attempt has succeeded
	revoked error      // why t is to be revoked as soon as it is there
	over    bool       // the view is over: no pair is begun any more but by who holds
	told    []byte     // the encoded cause, once it is over
	spare   map[int]*couple
	making  map[int]*making
}

// making is the making of a pair at a rank that needs it.
type making struct {
	signals chan []byte // for the pair
	probes  chan int
	done    chan struct{} // closed when the pair has begun, or err is set
	err     error         // the peer has closed
}

// newDemand returns the demand of an attempt of m.
func newDemand(m *Mesh, a *attempt) *demand {
	d := &demand{m: m, a: a, begun: make(chan struct{}),
		spare: make(map[int]*couple), making: make(map[int]*making)}
	life := context.Background()
	if m != nil {
		life = m.life
	}
	d.life, d.end = context.WithCancel(life)
	return d
}

// hold lets the caller begin a pair, until it calls Done of holds. It returns false if the view is over.
func (d *demand) hold() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return false
	}
	d.holds.Add(1)
	return true
}

// put adds a lane; the caller holds. One that comes again replaces the first, of which its opener has
// despaired, unless the pair has begun.
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

// adopt gives t the pairs that are made from now on, and those of which the lanes are there.
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

// revoke revokes the transport, now or when it is there.
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

// need begins to make the pair with a rank, if nobody does so yet. It returns the pair, if that has begun, or
// else what to wait for; nil if the view is over.
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

// make makes the pair with a rank. If it cannot be made the view is revoked, but not if the peer has closed:
// then only those fail who need it.
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

// depart notes that the peer has closed and has sent nothing.
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
		return d.m.retry(d.life, func() error { return d.knock(rank) })
	}
	for _, number := range []int{urgentStream, dataStream} {
		if err := d.open(rank, number); err != nil {
			return err
		}
	}
	return nil
}

// open binds a lane that rests to the view, or opens one.
func (d *demand) open(rank, number int) error {
	l, bound := d.m.bind(d.a, rank, number)
	if l != nil {
		select {
		case err := <-bound:
			if err == nil || isFinal(err) {
				return err
			}
		case <-d.life.Done():
			d.m.lanes.withdraw(d.a, l, true)
			return context.Cause(d.life)
		}
	}
	return d.m.dial(d.life, d.a, rank, number)
}

// serve ends the making of pairs when the transport has failed, and says farewell to those whose pairs have
// not begun.
func (d *demand) serve() {
	<-d.t.box.Failed()
	dead := false
	select {
	case <-d.t.host: // nobody is told anything any more
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

// close ends the life of the view.
func (d *demand) close(cause []byte) {
	d.mu.Lock()
	d.over, d.told = true, cause
	d.mu.Unlock()
	d.end()
}

// abandon ends what was gathered for an attempt that failed with err.
func (d *demand) abandon(err error) {
	cause := transport.EncodeCause(d.a.self, err)
	d.close(nil)
	d.holds.Wait()
	for _, s := range d.spare {
		s.farewell(wire.Header{Kind: wire.Revoke}, cause)
	}
}

// retire has the mesh forget the view, which all pairs have left, but for why it is over. Before, a peer that
// knocks may be one with which there is a pair that it has not begun yet.
func (d *demand) retire() {
	if d.m != nil {
		d.m.retire(d.a, d.told)
	}
}

// farewell ends the lanes of a pair that has not begun at this end, but perhaps at the other one.
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

// end ends the lanes that are there.
func (s *couple) end(how func(Stream) error) {
	for _, l := range s {
		if l.lane != nil {
			l.end(how)
		}
	}
}

// pairWith returns the pair with a rank, and has it made if there is none. The error is for a revocation.
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
