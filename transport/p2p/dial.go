package p2p

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"

	"github.com/elrun/elrun/elastic"
)

// dial is one attempt to connect with a peer, which all callers of reach for this peer share. It
// ends with the first connection of the peer in either direction, so that the callers use a
// connection from the peer even while the packets of their own dial are lost.
type dial struct {
	// ended is closed when there is a connection, or err is set.
	ended   chan struct{}
	err     error // valid once ended is closed
	waiting int   // number of callers of reach
	stop    context.CancelFunc
}

// dialer opens streams to peers, and makes the connections for them. All methods are safe for
// concurrent use.
//
// Each function in this list calls the next one:
//
//	retry       repeats until it succeeds, the peer is gone, or ctx ends
//	open        one stream; waits for hole punching before a long-lived one
//	newStream   one stream over an existing or a new connection
//	reach       one connection, shared by all that want the same peer
//	dialPeer    one dial of libp2p, which tries all addresses that the gate allows
//
// Without relays only the caller's ctx limits a dial (attemptLimit). With relays the limit of a
// dial grows with the failures since the last success, and with the attempts of the caller (retry).
type dialer struct {
	*conns

	relays *relays  // circuits are dialled, too
	punch  *puncher // replaces relayed connections before long-lived streams
	// firstDials is a semaphore with one element for each first connection that is being made.
	firstDials chan struct{}

	// mu guards the fields below.
	mu     sync.Mutex
	dials  map[peer.ID]*dial // attempts in progress to connect
	failed map[peer.ID]int   // failed attempts since the last success
}

// newDialer returns the dialer of a host.
func newDialer(c *conns, r *relays, p *puncher) *dialer {
	return &dialer{conns: c, relays: r, punch: p, firstDials: make(chan struct{}, maxFirstDials),
		dials: make(map[peer.ID]*dial), failed: make(map[peer.ID]int)}
}

// firstAttemptTime is the limit of the first attempt to reach a peer where relays are tried, too.
// Each later attempt has twice the limit of the attempt before, up to 16 times firstAttemptTime.
// The first attempts are short, because libp2p tries each address once per attempt, and the peer
// may make its reservation at a relay only later.
const firstAttemptTime = 2 * time.Second

// attemptLimit returns ctx with the limit of attempt number n, counted from 0, to reach a peer.
// Without relays it returns ctx.
func (d *dialer) attemptLimit(ctx context.Context, n int) context.Context {
	if !d.relays.inUse() {
		return ctx
	}
	return network.WithDialPeerTimeout(ctx, firstAttemptTime<<min(n, 4))
}

// reach returns nil when there is a connection with a peer. All callers for one peer share one
// attempt, which is cancelled when no caller waits any more.
func (d *dialer) reach(ctx context.Context, id peer.ID) error {
	if d.swarm.Connectedness(id) == network.Connected { // the usual case, without a lock
		return nil
	}
	one, err := d.joinDial(ctx, id)
	if err != nil {
		return err
	}
	defer d.leaveDial(id, one)
	select {
	case <-one.ended:
		return one.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failedDials returns the number of failed attempts to connect with a peer since the last success.
// Cancelled attempts do not count.
func (d *dialer) failedDials(id peer.ID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed[id]
}

// joinDial returns the attempt in progress with a peer, or begins one. The caller must call
// leaveDial afterwards. The attempt runs in a goroutine of its own: it belongs to all waiting
// callers, and the caller that began the attempt may leave first.
func (d *dialer) joinDial(ctx context.Context, id peer.ID) (*dial, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tasks.life.Err() != nil {
		return nil, errHostClosed
	}
	one := d.dials[id]
	if one == nil {
		one = &dial{ended: make(chan struct{})}
		// The attempt takes its dial timeout from the caller's ctx, and not its cancellation.
		within, stop := context.WithCancel(network.WithDialPeerTimeout(d.tasks.life, network.GetDialPeerTimeout(ctx)))
		one.stop = stop
		began := d.tasks.run(func() {
			err := d.dialPeer(within, id)
			d.endDial(id, one, err)
		})
		if !began {
			stop()
			return nil, errHostClosed
		}
		d.dials[id] = one
	}
	one.waiting++
	return one, nil
}

const (
	// maxFirstDials is the number of first connections that a host makes at a time. All peers of a
	// job connect at its start. If all handshakes ran at once, each would take as long as all of
	// them together, and exceed its time limit.
	maxFirstDials = 8
	// firstDialTime is how long a dial may hold its slot of firstDials. A dial that takes longer
	// waits for the network rather than for a processor.
	firstDialTime = time.Second
)

// dialPeer makes a connection. The first dial to a peer waits for a slot of firstDials. A peer that
// was reached before is dialled without a slot, because a failed dial detects the death of the
// peer.
func (d *dialer) dialPeer(ctx context.Context, id peer.ID) error {
	if !d.gate.wasReached(id) {
		select {
		case d.firstDials <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		leave := sync.OnceFunc(func() { <-d.firstDials })
		timer := time.AfterFunc(firstDialTime, leave)
		defer leave()
		defer timer.Stop()
	}
	d.relays.addCircuits(id) // anew for each dial: the preferred members change
	// Both sides have spent work on a handshake in progress, so the limit does not cancel a dial
	// during a handshake.
	limit := network.GetDialPeerTimeout(ctx)
	ctx, stop := context.WithCancelCause(network.WithDialPeerTimeout(ctx, limit+handshakeTime))
	defer stop(nil)
	timer := time.AfterFunc(limit, func() {
		if d.handshakes.await(ctx, id) == nil {
			stop(context.DeadlineExceeded)
		}
	})
	defer timer.Stop()
	_, err := d.swarm.DialPeer(ctx, id)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("dial for %v: %w", limit, cause)
	}
	return err
}

// leaveDial removes a caller from an attempt, and cancels the attempt after the last caller. It has
// no effect on an attempt that has ended.
func (d *dialer) leaveDial(id peer.ID, one *dial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one.waiting--; one.waiting == 0 {
		d.endDialLocked(id, one, context.Canceled)
	}
}

// endDial ends an attempt with err, unless it has ended.
func (d *dialer) endDial(id peer.ID, one *dial, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endDialLocked(id, one, err)
}

// endDialLocked is endDial for callers that hold d.mu. It counts failures in d.failed, but not
// cancellations.
func (d *dialer) endDialLocked(id peer.ID, one *dial, err error) {
	if d.dials[id] != one {
		return
	}
	delete(d.dials, id)
	switch {
	case err == nil:
		delete(d.failed, id)
	// A cancelled dial says nothing about the peer.
	case !errors.Is(err, context.Canceled):
		d.failed[id]++
	}
	one.err = err
	one.stop()
	close(one.ended)
}

// endReached ends the attempt with a peer after a connection was made in either direction. It
// cancels the dial in progress.
func (d *dialer) endReached(id peer.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.dials[id]; one != nil {
		d.endDialLocked(id, one, nil)
	}
}

// newStream opens a stream to a peer, and connects first if there is no connection.
func (d *dialer) newStream(ctx context.Context, id peer.ID) (network.Stream, error) {
	// A connection may end between reach and NewStream, so both are tried twice.
	for last := false; ; last = true {
		if err := d.reach(ctx, id); err != nil {
			return nil, err
		}
		s, err := d.swarm.NewStream(network.WithNoDial(ctx, "reached"), id)
		if last || !errors.Is(err, network.ErrNoConn) {
			return s, err
		}
	}
}

// Bounds of the pause between attempts to reach a peer. The pause doubles after each attempt.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
	// notYetPause is the first pause after the answer that a member cannot decide yet. The pause
	// doubles with each attempt, up to eight times notYetPause.
	notYetPause = 500 * time.Millisecond
)

// retry calls f until it succeeds, f's error is final, the peer is gone, the host closes, or ctx
// ends. The first call may fail because this host was not introduced to the peer yet: then the peer
// closes the connection, but accepts a later connection.
func (d *dialer) retry(ctx context.Context, id peer.ID, f func(context.Context) error) error {
	pause := firstPause
	for n := 0; ; n++ {
		d.swarm.Backoff().Clear(id) // retry has its own pauses
		err := f(d.attemptLimit(ctx, n+d.failedDials(id)))
		if err == nil || errors.As(err, new(final)) {
			return err
		}
		if refused(err) && d.gate.graceLeft(id) == 0 {
			return fmt.Errorf("%w: %w", elastic.ErrGone, err)
		}
		wait := pause
		switch {
		case d.gate.forgetAddr(id) && !refused(err):
			wait = 0 // only the recorded address was tried; now all addresses are tried
		case errors.Is(err, errNotYet):
			wait = notYetPause << min(n, 3) // each attempt costs both sides a handshake
		}
		if err := d.tasks.pause(ctx, wait, err); err != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// refused reports whether err proves that the process of the peer has ended: at every dialled
// address the port is closed, or belongs to another process. This check detects the death of a
// process within milliseconds. Any other error, such as a timeout, may have its cause in the
// network. With addresses that libp2p has skipped the result is false.
func refused(err error) bool {
	var dial *swarm.DialError
	if !errors.As(err, &dial) {
		return false
	}
	n := 0
	for _, e := range dial.DialErrors {
		switch {
		case errors.Is(e.Cause, swarm.ErrGaterDisallowedConnection):
			// Not dialled: the gate allows only the address where the peer was found last.
		case errors.Is(e.Cause, syscall.ECONNREFUSED), errors.Is(e.Cause, swarm.ErrDialToSelf),
			errors.As(e.Cause, new(sec.ErrPeerIDMismatch)):
			n++ // the port is closed, or belongs to another process now
		default:
			return false
		}
	}
	return n > 0 && dial.Skipped == 0
}

// open opens a stream, and connects first if there is no connection. The first read shows whether
// the peer accepts the stream. After the first write and the first read callers may use the
// embedded Stream directly.
func (d *dialer) open(ctx context.Context, id peer.ID, p protocol.ID) (*lazyStream, error) {
	// These streams carry much traffic or live long: they wait for the first attempt to replace a
	// relayed connection.
	if p == dataProtocol || p == urgentProtocol || p == bulkProtocol {
		if err := d.settle(ctx, id); err != nil {
			return nil, err
		}
	}
	s, err := d.newStream(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.SetProtocol(p); err != nil {
		_ = s.Reset()
		return nil, err
	}
	return &lazyStream{s, multistream.NewMSSelect(s, p)}, nil
}

// settle connects with a peer before a long-lived stream is opened, and waits for the first attempt
// to replace a relayed connection by hole punching.
func (d *dialer) settle(ctx context.Context, id peer.ID) error {
	if d.punch == nil {
		return nil
	}
	err := d.reach(ctx, id)
	if err == nil {
		d.punch.tryPunch(id)
		d.punch.awaitAttempt(ctx, id)
	}
	return err
}

// unansweredTime is the age from which confirm also closes the connection of a stream that the peer
// has not answered.
const unansweredTime = 5 * time.Second

// confirm waits until the other side has accepted the stream's protocol. It resets the stream on
// error. After unansweredTime without an answer it closes the connection, too: packets may get lost
// on the path of the connection, so the next stream must use another connection. After a shorter
// wait the peer may just be busy.
func (d *dialer) confirm(ctx context.Context, s *lazyStream) error {
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	_, err := s.Read(nil)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	_ = s.Reset()
	if ctx.Err() != nil && time.Since(began) >= unansweredTime {
		d.hangUp(s.Conn())
	}
	return err
}

// isIPv6 reports whether an address has an IPv6 component.
func isIPv6(a multiaddr.Multiaddr) bool {
	_, err := a.ValueForProtocol(multiaddr.P_IP6)
	return err == nil
}
