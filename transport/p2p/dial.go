package p2p

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/collective/transport"
)

// dial is an attempt to connect with a peer, for all that wait for it. It ends with the
// first connection, whoever has made it: one that comes in does not have to wait until
// packets that vanish on the way out are given up.
type dial struct {
	ended   chan struct{} // closed when there is a connection, or err is set
	err     error
	waiting int // callers of reach
	stop    context.CancelFunc
}

// firstPatience is how long the first of several attempts to reach a peer may take where
// ways by others are tried, too; the next may take twice as long. libp2p does not try an
// address again in an attempt, and who is between may have had no place for the peer yet.
const firstPatience = 2 * time.Second

// patience bounds attempt number n, from 0, to reach a peer.
func (h *Host) patience(ctx context.Context, n int) context.Context {
	if h.relay == nil || !h.reserved.wide.Load() {
		return ctx
	}
	return network.WithDialPeerTimeout(ctx, firstPatience<<min(n, 4))
}

// reach returns when there is a connection with a peer. All that call it for a peer share
// one attempt, which is given up when nobody waits for it any more.
func (h *Host) reach(ctx context.Context, id peer.ID) error {
	if h.swarm.Connectedness(id) == network.Connected {
		return nil
	}
	d, err := h.joinDial(ctx, id)
	if err != nil {
		return err
	}
	defer h.leaveDial(id, d)
	select {
	case <-d.ended:
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failedDials returns how often a peer was dialled in vain since it was reached last.
func (h *Host) failedDials(id peer.ID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed[id]
}

// joinDial returns the attempt in progress, or begins one.
func (h *Host) joinDial(ctx context.Context, id peer.ID) (*dial, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fmt.Errorf("%w: host closed", transport.ErrClosed)
	}
	d := h.dials[id]
	if d == nil {
		d = &dial{ended: make(chan struct{})}
		// Of the caller's ctx the attempt has the time that it may take, not the end.
		within, stop := context.WithCancel(network.WithDialPeerTimeout(h.life, network.GetDialPeerTimeout(ctx)))
		d.stop = stop
		h.dials[id] = d
		h.working.Add(1)
		go func() {
			defer h.working.Done()
			err := h.dialPeer(within, id)
			h.endDial(id, d, err)
		}()
	}
	d.waiting++
	return d, nil
}

const (
	// maxFirstDials is how many first connections a host makes at a time. All peers of a job
	// connect at its start, and handshakes that all run at once all take as long as all of
	// them together, beyond their time limits.
	maxFirstDials = 8
	// firstDialTime is how long a dial may hold its place: one that takes longer waits for the
	// network rather than for a processor.
	firstDialTime = time.Second
)

// dialPeer makes a connection. The first one with a peer waits for a place; a peer that was
// reached before is dialled at once, as that is how its death is found.
func (h *Host) dialPeer(ctx context.Context, id peer.ID) error {
	if !h.gate.hasMet(id) {
		select {
		case h.firstDials <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		leave := sync.OnceFunc(func() { <-h.firstDials })
		timer := time.AfterFunc(firstDialTime, leave)
		defer leave()
		defer timer.Stop()
	}
	h.tellWays(id)
	_, err := h.swarm.DialPeer(ctx, id)
	return err
}

// leaveDial ends an attempt for which nobody waits any more.
func (h *Host) leaveDial(id peer.ID, d *dial) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.waiting--; d.waiting == 0 {
		h.endDialLocked(id, d, context.Canceled)
	}
}

// endDial ends an attempt, unless it has ended.
func (h *Host) endDial(id peer.ID, d *dial, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endDialLocked(id, d, err)
}

// endDialLocked is endDial for callers that hold the lock.
func (h *Host) endDialLocked(id peer.ID, d *dial, err error) {
	if h.dials[id] != d {
		return
	}
	delete(h.dials, id)
	switch {
	case err == nil:
		delete(h.failed, id)
	case !errors.Is(err, context.Canceled):
		h.failed[id]++
	}
	d.err = err
	d.stop()
	close(d.ended)
}

// reached ends the attempt to connect with a peer with which there is a connection.
func (h *Host) reached(id peer.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.dials[id]; d != nil {
		h.endDialLocked(id, d, nil)
	}
}

// newStream opens a stream, and a connection where there is none.
func (h *Host) newStream(ctx context.Context, id peer.ID) (network.Stream, error) {
	// A connection may end just after it was found.
	for last := false; ; last = true {
		if err := h.reach(ctx, id); err != nil {
			return nil, err
		}
		s, err := h.swarm.NewStream(network.WithNoDial(ctx, "reached"), id)
		if last || !errors.Is(err, network.ErrNoConn) {
			return s, err
		}
	}
}
