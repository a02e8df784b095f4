package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/elastic"
)

// Two peers may open a control stream to each other at the same time, so a pair can
// have two: each side writes to the first it has, to keep its messages in order, and
// reads all of them. More than maxControls are refused.
const maxControls = 4

// Send implements elastic.Network. To a peer with which there is no stream it connects
// first. It ends with elastic.ErrGone as soon as it is certain that nobody is there, which it
// is not in the first second after a peer was introduced: then, and while the peer does
// not answer or does not know this host, it tries again until ctx ends.
//
// A connection on which messages have not been acknowledged for stuckTime, while nothing
// else came from the peer either, is closed and made anew: TCP by itself would try
// again ever more rarely, so that a network that works again would not be noticed.
func (h *Host) Send(ctx context.Context, to elastic.ID, msg []byte) error {
	err := h.send(ctx, to, msg)
	if err != nil {
		return fmt.Errorf("p2p: send to %s: %w", to.Short(), err)
	}
	return nil
}

// send writes on the stream of the pair, and on a new one should that have ended. It does
// not end by itself while the peer may come: only its death, or ctx, does that.
func (h *Host) send(ctx context.Context, to elastic.ID, msg []byte) error {
	if len(msg) > elastic.MaxControl {
		return fmt.Errorf("message of %d bytes, at most %d", len(msg), elastic.MaxControl)
	}
	id, err := idOf(string(to))
	if err != nil {
		return err
	}
	if h.gate.isBanned(id) {
		return errForgotten
	}
	for {
		s, err := h.control(ctx, id)
		if err != nil {
			return err
		}
		if h.stuck(id) {
			h.abandon(id, s)
			continue
		}
		if err := s.takeTurn(ctx); err != nil {
			return err // another is writing, and sees to it
		}
		err = s.write(ctx, msg)
		<-s.turn
		if err == nil {
			return nil
		}
		h.dropControl(id, s)
		_ = s.Reset() // half a message may be on its way
		if ctx.Err() != nil {
			if h.stuck(id) {
				h.hangUp(s.Conn())
			}
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		// The stream had ended: this is the time to connect again.
	}
}

// stuck reports whether the peer acknowledges nothing and says nothing.
func (h *Host) stuck(id peer.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := false
	for _, s := range h.controls[id] {
		since, quiet := s.silence()
		if !quiet {
			return false
		}
		waiting = waiting || since
	}
	return waiting
}

// abandon gives up the connection of s.
func (h *Host) abandon(id peer.ID, s *controlStream) {
	h.dropControl(id, s)
	h.hangUp(s.Conn())
}

// control returns the stream to write to id on. If there is none it opens one, while
// other callers wait: with several open, messages could overtake each other.
func (h *Host) control(ctx context.Context, id peer.ID) (*controlStream, error) {
	for {
		if s := h.firstControl(id); s != nil {
			return s, nil
		}
		ended, mine := h.beginOpening(id)
		if mine {
			err := h.retry(ctx, id, func(ctx context.Context) error { return h.openControl(ctx, id) })
			h.endOpening(id, ended)
			if err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// beginOpening makes the caller the one that opens a stream to id, or returns the
// channel that is closed when another has ended doing so.
func (h *Host) beginOpening(id peer.ID) (ended chan struct{}, mine bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ended := h.opening[id]; ended != nil {
		return ended, false
	}
	ended = make(chan struct{})
	h.opening[id] = ended
	return ended, true
}

// endOpening lets those look again that waited for the opener.
func (h *Host) endOpening(id peer.ID, ended chan struct{}) {
	h.mu.Lock()
	delete(h.opening, id)
	h.mu.Unlock()
	close(ended)
}

// openControl opens a stream and starts its reader. The peer must have taken it: one
// that does not know this host yet resets it, and a message would be lost.
func (h *Host) openControl(ctx context.Context, id peer.ID) error {
	raw, err := h.open(ctx, id, controlProtocol)
	if err != nil {
		return err
	}
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { _ = raw.Reset() })
	err = raw.negotiate()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Reset()
		if ctx.Err() != nil && time.Since(began) >= stuckTime {
			h.hangUp(raw.Conn())
		}
		return err
	}
	s, err := h.addControl(raw.Stream)
	if err != nil {
		return err
	}
	go func() {
		defer h.working.Done()
		h.readControl(id, s)
	}()
	return nil
}

// firstControl returns the stream that this host writes to id on, or nil.
func (h *Host) firstControl(id peer.ID) *controlStream {
	h.mu.Lock()
	defer h.mu.Unlock()
	if open := h.controls[id]; len(open) > 0 {
		return open[0]
	}
	return nil
}

// addControl makes a stream known and counts its reader, which the caller runs.
func (h *Host) addControl(raw network.Stream) (*controlStream, error) {
	id := raw.Conn().RemotePeer()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.controls[id]) >= maxControls {
		_ = raw.Reset()
		return nil, errors.New("too many control streams")
	}
	s := newControl(raw)
	h.controls[id] = append(slices.Clone(h.controls[id]), s)
	h.working.Add(1)
	return s, nil
}

// dropControl forgets a stream that has ended.
func (h *Host) dropControl(id peer.ID, s *controlStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(h.controls[id]), func(o *controlStream) bool { return o == s })
	if len(left) == 0 {
		delete(h.controls, id)
		return
	}
	h.controls[id] = left
}

// acceptControl handles a stream that a member opened.
func (h *Host) acceptControl(raw network.Stream) {
	s, err := h.addControl(raw)
	if err != nil {
		return
	}
	defer h.working.Done()
	h.readControl(raw.Conn().RemotePeer(), s)
}

// readControl delivers the messages of s until it ends.
func (h *Host) readControl(id peer.ID, s *controlStream) {
	name := elastic.ID(id.String())
	h.links.up(name)
	h.reserve(s.Conn())
	err := readMessages(s, s.acknowledged, func(msg []byte) {
		s.acknowledge()
		h.links.message(name, msg)
		h.throttle.spend(id, messageTokens)
	})
	h.dropControl(id, s)
	_ = s.Reset()
	h.links.down(name, err)
}

// Redial implements elastic.Network.
func (h *Host) Redial(to elastic.ID) {
	id, err := idOf(string(to))
	if err != nil {
		return
	}
	if !h.begin() {
		return
	}
	go func() {
		defer h.working.Done()
		for _, c := range h.swarm.ConnsToPeer(id) {
			h.hangUp(c)
		}
	}()
}

// Events implements elastic.Network.
func (h *Host) Events() <-chan elastic.PeerEvent { return h.links.out }
