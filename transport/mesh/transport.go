package mesh

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mailbox"
)

// Transport is the data plane of one view at one rank; it implements
// transport.Transport and transport.Meter. A message is at most wire.MaxData bytes long.
//
// Its life is that of its mailbox: while that has not failed, readers fill it and
// senders write; when it fails, by Revoke or by Close, finish ends each pair.
type Transport struct {
	self  int
	name  string // short ID
	box   *mailbox.Box
	pairs []*pair         // by rank; nil at self
	ended error           // the cause if Close is what fails the box
	epoch uint64          // of the view
	host  <-chan struct{} // closed when the mesh is, whose streams then end
	lanes *lanes          // of the mesh

	handed atomic.Bool // somebody has been given the shared memory

	closing chan struct{} // closed by Close
	once    sync.Once
	working sync.WaitGroup // all goroutines but the readers, which are those of the lanes
}

// newTransport takes over the streams of an attempt that succeeded, and the memory that is
// shared, if s is not nil.
func newTransport(host <-chan struct{}, lanes *lanes, a *attempt, s *sharing) *Transport {
	v, self, streams := a.view, a.self, a.streams
	t := &Transport{
		host:    host,
		lanes:   lanes,
		epoch:   v.Epoch,
		self:    self,
		name:    v.Members[self].ID.Short(),
		pairs:   make([]*pair, len(streams)),
		ended:   fmt.Errorf("mesh: %w", transport.ErrClosed),
		closing: make(chan struct{}),
	}
	t.box = mailbox.New(self, len(streams), mailbox.DefaultLimit, t.Revoke)
	if s != nil {
		t.box.Share(s.shared(t.box.Cause))
	}
	for rank, s := range streams {
		if rank == self {
			continue
		}
		t.pairs[rank] = newPair(t, rank, v.Members[rank].ID.Short(), s)
	}
	if s != nil {
		s.keepVigil(func(rank int) { t.pairs[rank].died() })
	}
	for _, p := range t.pairs {
		if p == nil {
			continue
		}
		for _, l := range streams[p.rank] {
			l.pair <- p
		}
		t.working.Go(p.writeSignals)
		t.working.Go(p.finish)
	}
	return t
}

// Shared implements transport.Sharer. Who calls it calls Release as well; otherwise Close
// gives the memory back.
func (t *Transport) Shared() *transport.Shared {
	t.handed.Store(true)
	return t.box.Shared()
}

// Path implements elastic.Pather.
func (t *Transport) Path(rank int) event.Path {
	return t.pairs[rank].path
}

// Send implements transport.Transport.
func (t *Transport) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	if err := t.box.Check("send", to); err != nil {
		return err
	}
	if len(buf) > wire.MaxData {
		return fmt.Errorf("send: %d bytes, at most %d: %w", len(buf), wire.MaxData, collective.ErrArgument)
	}
	var err error
	if to == t.self {
		err = t.sendSelf(e, buf)
	} else {
		err = t.pairs[to].send(ctx, e, buf)
	}
	if err != nil {
		t.Revoke(err)
		return t.box.Cause()
	}
	return nil
}

// sendSelf never waits: a mailbox has no limit for its own rank.
func (t *Transport) sendSelf(e transport.Envelope, buf []byte) error {
	m, err := t.box.Accept(t.self, e, len(buf))
	if err != nil {
		return err
	}
	copy(m.Buf, buf)
	m.Done()
	return nil
}

// Recv implements transport.Transport.
func (t *Transport) Recv(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
	return t.box.Recv(ctx, from, e, buf)
}

// Post implements transport.Transport.
func (t *Transport) Post(from int, e transport.Envelope, buf []byte) transport.Posted {
	return t.box.Post(from, e, buf)
}

// Arrived implements transport.Meter.
func (t *Transport) Arrived() []transport.Arrival {
	all := make([]transport.Arrival, len(t.pairs))
	for rank, p := range t.pairs {
		if p != nil {
			all[rank] = p.gauge.Reset()
		}
	}
	return all
}

// Probe implements transport.Meter.
func (t *Transport) Probe(to, bytes int) {
	if t.box.Check("probe", to) != nil || to == t.self || t.box.Cause() != nil || bytes > transport.MaxProbe {
		return
	}
	select {
	case t.pairs[to].probes <- bytes:
	default:
	}
}

// Signal implements transport.Transport. A signal that is too long is lost.
func (t *Transport) Signal(to int, msg []byte) {
	if t.box.Check("signal", to) != nil || t.box.Cause() != nil || len(msg) > transport.MaxSignal {
		return
	}
	if to == t.self {
		t.box.Signal(to, msg)
		return
	}
	select {
	case t.pairs[to].signals <- append([]byte(nil), msg...):
	default:
	}
}

// Signals implements transport.Transport.
func (t *Transport) Signals() <-chan transport.Signal { return t.box.Signals() }

// Revoke implements transport.Transport. The others are told by the goroutines of the
// pairs.
func (t *Transport) Revoke(cause error) {
	if cause == nil {
		cause = transport.ErrRevoked
	}
	t.box.Fail(cause)
}

// Close implements transport.Transport. It takes a few seconds at most, and that only
// where a peer neither answers nor ends.
func (t *Transport) Close() error {
	t.once.Do(func() {
		t.box.Fail(t.ended)
		close(t.closing)
	})
	t.working.Wait()
	if s := t.box.Shared(); s != nil && !t.handed.Load() {
		return s.Release()
	}
	return nil
}
