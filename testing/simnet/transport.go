package simnet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/mailbox"
)

// closeTime is how long Close waits for a peer to answer. It is reached only when the
// peer is stopped or cut off.
const closeTime = 5 * time.Second

// viewTransport is the data plane of one view at one rank; it implements
// transport.Transport.
type viewTransport struct {
	node  *node
	epoch uint64
	self  int
	box   *mailbox.Box
	ends  []*end // by rank; nil at self
	ended error  // the cause if Close is what fails the box

	over    chan struct{} // closed when the readers should end
	once    sync.Once
	working sync.WaitGroup // the readers
}

var _ transport.Transport = (*viewTransport)(nil)

// newTransport takes over the connections of an attempt that succeeded.
func newTransport(a *attempt) *viewTransport {
	t := &viewTransport{node: a.node, epoch: a.view.Epoch, self: a.self, ends: a.ends,
		ended: fmt.Errorf("simnet: %w", transport.ErrClosed), over: make(chan struct{})}
	t.box = mailbox.New(a.self, len(a.ends), mailbox.DefaultLimit, t.Revoke)
	n := a.node.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.node.dead != nil {
		t.box.Fail(a.node.deadLocked())
		return t
	}
	for _, e := range t.ends {
		if e != nil {
			e.startLocked(t)
		}
	}
	return t
}

// Send implements transport.Transport.
func (t *viewTransport) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	if err := t.box.Check("send", to); err != nil {
		return err
	}
	if err := t.send(ctx, to, e, buf); err != nil {
		t.Revoke(err)
		return t.box.Cause()
	}
	return nil
}

// send counts the message and brings it on its way. The error is for a revocation.
func (t *viewTransport) send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	if cause := t.box.Cause(); cause != nil {
		return cause
	}
	if to == t.self {
		return t.sendSelf(e, buf)
	}
	if err := t.node.gate(ctx); err != nil {
		return t.ctxError(ctx, err, to)
	}
	end := t.ends[to]
	if err := t.node.observe(Message{To: end.peer, Plane: Data, Bytes: len(buf), Epoch: t.epoch, Envelope: e}); err != nil {
		return err
	}
	return end.send(ctx, e, buf)
}

// ctxError is the cause of a revocation by err, which is the end of ctx or of the member.
func (t *viewTransport) ctxError(ctx context.Context, err error, to int) error {
	if ctx.Err() != nil {
		return mailbox.Cancelled(ctx, t.self, fmt.Sprintf("send to rank %d", to))
	}
	return err
}

// sendSelf never waits: a mailbox has no limit for its own rank.
func (t *viewTransport) sendSelf(e transport.Envelope, buf []byte) error {
	m, err := t.box.Accept(t.self, e, len(buf))
	if err != nil {
		return err
	}
	copy(m.Buf, buf)
	m.Done()
	return nil
}

// Recv implements transport.Transport.
func (t *viewTransport) Recv(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
	return t.box.Recv(ctx, from, e, buf)
}

// Post implements transport.Transport.
func (t *viewTransport) Post(from int, e transport.Envelope, buf []byte) transport.Posted {
	return t.box.Post(from, e, buf)
}

// Signal implements transport.Transport. A signal that is too long is lost.
func (t *viewTransport) Signal(to int, msg []byte) {
	switch {
	case t.box.Check("signal", to) != nil, t.box.Cause() != nil, len(msg) > transport.MaxSignal:
	case to == t.self:
		t.box.Signal(to, msg)
	default:
		t.ends[to].signal(msg)
	}
}

// Signals implements transport.Transport.
func (t *viewTransport) Signals() <-chan transport.Signal { return t.box.Signals() }

// Revoke implements transport.Transport. The others are told over the links.
func (t *viewTransport) Revoke(cause error) {
	if cause == nil {
		cause = transport.ErrRevoked
	}
	if !t.box.Fail(cause) {
		return
	}
	told := transport.EncodeCause(t.self, cause)
	t.each(func(e *end) { e.passOnLocked(told) })
}

// each calls f for all ends, under the network's lock.
func (t *viewTransport) each(f func(e *end)) {
	t.node.net.mu.Lock()
	defer t.node.net.mu.Unlock()
	for _, e := range t.ends {
		if e != nil && !e.closed {
			f(e)
		}
	}
}

// Close implements transport.Transport. It takes a few seconds at most, and that only
// where a peer neither answers nor ends.
func (t *viewTransport) Close() error {
	t.once.Do(func() {
		if t.box.Fail(t.ended) {
			t.each((*end).sayByeLocked)
		}
		t.settle()
		t.each((*end).finLocked)
		close(t.over)
		t.working.Wait()
	})
	return nil
}

// settle waits until the peers need nothing more.
func (t *viewTransport) settle() {
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	for _, e := range t.ends {
		if e == nil {
			continue
		}
		select {
		case <-e.settled:
		case <-t.node.gone:
			return
		case <-timer.C:
			return
		}
	}
}
