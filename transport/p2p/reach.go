package p2p

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"github.com/elrun/elrun/elastic"
)

// Bounds of the pause between attempts to reach a peer. It doubles after each attempt.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// retry calls f until it succeeds, f's error is final, the peer is gone, the host closes, or ctx
// ends. The first call may fail as this host has not been introduced to the peer yet: then the peer
// closes the connection, and accepts a later one.
func (d *dialer) retry(ctx context.Context, id peer.ID, f func(context.Context) error) error {
	pause := firstPause
	for n := 0; ; n++ {
		d.swarm.Backoff().Clear(id) // retry has its own pauses
		err := f(d.attemptLimit(ctx, n))
		if err == nil || errors.As(err, new(final)) {
			return err
		}
		if refused(err) && d.gate.graceLeft(id) == 0 {
			return fmt.Errorf("%w: %w", elastic.ErrGone, err)
		}
		wait := pause
		if d.gate.forgetAddr(id) && !refused(err) {
			wait = 0 // one address was tried, the one that worked last; now all are tried
		}
		if err := d.tasks.pause(ctx, wait, err); err != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// refused reports whether every dialled address of the peer has refused: its port is closed, or
// belongs to another process. Then the peer is gone for certain, which is how the death of a
// process is found within milliseconds. Any other error, a timeout among them, may be a matter of
// the network, and proves nothing. Skipped addresses were not dialled, and prove nothing either.
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
			n++ // the port is closed, or another process has it
		default:
			return false
		}
	}
	return n > 0 && dial.Skipped == 0
}

// open opens a stream, and connects first if there is no connection. The first read shows whether
// the peer accepts the stream. After bytes were written and read the embedded Stream can be used by
// itself.
func (d *dialer) open(ctx context.Context, id peer.ID, p protocol.ID) (*lazyStream, error) {
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
	return &lazyStream{Stream: s, proposal: proposalOf(p)}, nil
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

// unansweredTime is the age of an unanswered stream from which a caller that gives up also closes
// the connection.
const unansweredTime = 5 * time.Second

// confirm waits until the other side has accepted the stream's protocol. It resets the stream on
// error, and closes the connection after unansweredTime without an answer: the connection may lead
// into a hole, and the next stream is to take another one. A shorter wait says nothing, as the peer
// may be busy.
func (d *dialer) confirm(ctx context.Context, s *lazyStream) error {
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	err := s.negotiate()
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
