package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// Two peers may open a control stream to each other at the same time, so a pair can
// have two: each side writes to the first it has, to keep its messages in order, and
// reads all of them. More than maxControls are refused.
const maxControls = 4

// controlStream is a stream of messages, each with its length in four bytes before it.
type controlStream struct {
	network.Stream
	turn chan struct{} // holds a token while somebody writes
}

// Send implements elastic.Control. To a peer with which there is no stream it connects
// first, and tries again until ctx ends, as the peer may not know this host yet.
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
	for {
		s, err := h.control(ctx, id)
		if err != nil {
			return err
		}
		if err = s.write(ctx, msg); err == nil {
			return nil
		}
		h.dropControl(id, s)
		_ = s.Reset() // half a message may be on its way
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// The stream had ended: this is the time to connect again.
	}
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

// openControl opens a stream and starts its reader.
func (h *Host) openControl(ctx context.Context, id peer.ID) error {
	raw, err := h.host.NewStream(ctx, id, controlProtocol)
	if err != nil {
		return err
	}
	s, err := h.addControl(raw)
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
	s := &controlStream{Stream: raw, turn: make(chan struct{}, 1)}
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
	err := readMessages(s, func(msg []byte) { h.links.message(name, msg) })
	h.dropControl(id, s)
	_ = s.Reset()
	h.links.down(name, err)
}

// readMessages reads until an error, which it returns. The length of a message is
// checked before there is memory for it.
func readMessages(r io.Reader, deliver func([]byte)) error {
	var head [4]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n > elastic.MaxControl {
			return fmt.Errorf("control message of %d bytes, at most %d", n, elastic.MaxControl)
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(r, msg); err != nil {
			return err
		}
		deliver(msg)
	}
}

// write writes one message; after an error the stream cannot be used any more.
func (s *controlStream) write(ctx context.Context, msg []byte) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	stop := context.AfterFunc(ctx, func() { _ = s.SetWriteDeadline(time.Unix(1, 0)) })
	frame := append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(msg)), uint32(len(msg))), msg...)
	_, err := s.Write(frame)
	if !stop() && err == nil {
		err = context.Cause(ctx) // written, but the deadline has spoiled the stream
	}
	return err
}

// Events implements elastic.Control.
func (h *Host) Events() <-chan elastic.PeerEvent { return h.links.out }

// The pauses between attempts to reach a peer.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// retry calls f until it succeeds, the peer refuses for good or is dead, the host
// closes, or ctx ends. A peer that was told of this host a little later than this host
// of it closes the connection first, and answers the next.
func (h *Host) retry(ctx context.Context, id peer.ID, f func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		h.swarm.Backoff().Clear(id) // retry has its own pauses
		err := f(ctx)
		if err == nil || errors.Is(err, errRefused) {
			return err
		}
		if errors.Is(err, syscall.ECONNREFUSED) && h.links.seen(elastic.ID(id.String())) {
			return err // it was there, and nobody listens any more
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-h.done:
			timer.Stop()
			return fmt.Errorf("%w: host closed", collective.ErrClosed)
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}
}
