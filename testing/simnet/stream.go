package simnet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/mesh"
)

// errReset means that the peer's side, or a fault of the network, has broken the connection.
var errReset = fmt.Errorf("connection lost: %w", mesh.ErrReset)

// errEnded means that this side has ended the stream.
var errEnded = errors.New("stream has ended")

// stream is one side of a stream between two members. It implements mesh.Stream, TwoWriter and
// Observer. It has no goroutine: the clock appends arriving bytes to the buffer in, from which Read
// takes them.
type stream struct {
	node *node
	peer elastic.ID
	kind mesh.Kind
	out  *pipe // direction to the peer

	number uint64 // number among the streams of this member

	// Guarded by the network's mu.
	readable sync.Cond // signals changes of in, readEnd, readLimit and the node's state
	writable sync.Cond // signals changes of out.used, writeEnd, writeLimit and the node's state
	opening  *opening  // set while Open waits
	other    *stream   // the peer's side; nil until the peer has accepted the stream
	in       []chunk
	readEnd  error // what Read returns after all of in
	writeEnd error

	readLimit, writeLimit time.Time
	next                  fate // fate of the next write on Control
}

// chunk is a part of the bytes that have arrived. A free chunk, a duplicate, does not count in the window.
type chunk struct {
	data []byte
	free bool
}

// newStreamLocked creates this member's side of a stream.
func (n *node) newStreamLocked(peer elastic.ID, k mesh.Kind) *stream {
	n.made++
	s := &stream{node: n, peer: peer, kind: k, number: n.made}
	s.readable.L, s.writable.L = &n.net.mu, &n.net.mu
	s.out = n.net.linkLocked(n.self.ID, peer).addPipeLocked(planeOf(k), s)
	n.streams[s] = true
	return s
}

// planeOf returns the plane of a kind of streams.
func planeOf(k mesh.Kind) Plane {
	switch k {
	case mesh.Control:
		return Control
	case mesh.Bulk:
		return Bulk
	}
	return Data
}

// Peer implements mesh.Stream.
func (s *stream) Peer() elastic.ID { return s.peer }

// Path implements mesh.Stream.
func (s *stream) Path() event.Path { return event.Path{} }

// Read implements mesh.Stream. It returns the bytes that have arrived before it returns the error
// for the end of the stream.
func (s *stream) Read(b []byte) (int, error) {
	data, err := s.take(len(b))
	return copy(b, data), err
}

// take waits until bytes have arrived or the stream has ended, and returns at most n bytes.
func (s *stream) take(n int) ([]byte, error) {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	for {
		switch stopped := s.node.stopped; {
		case s.node.dead != nil:
			return nil, s.node.deadLocked()
		case len(s.in) > 0 && !stopped:
			return s.takeLocked(n), nil
		case s.readEnd != nil && !stopped:
			return nil, s.readEnd
		case n == 0:
			return nil, nil
		case s.node.expiredLocked(s.readLimit):
			return nil, os.ErrDeadlineExceeded
		}
		s.waitLocked(&s.readable, s.readLimit)
	}
}

// takeLocked removes at most n bytes from the first chunk, and frees room for the writer.
func (s *stream) takeLocked(n int) []byte {
	c := &s.in[0]
	n = min(n, len(c.data))
	data := c.data[:n]
	if !c.free && s.other != nil {
		s.other.out.readLocked(n)
	}
	if c.data = c.data[n:]; len(c.data) == 0 {
		shift(&s.in)
	}
	return data
}

// Write implements mesh.Stream. On Control each write is one message, which is accepted as a whole.
func (s *stream) Write(b []byte) (int, error) { return s.write(b, nil) }

// WriteTwo implements mesh.TwoWriter. Header and payload travel in one frame if they fit.
func (s *stream) WriteTwo(head, body []byte) error {
	_, err := s.write(head, body)
	return err
}

// write writes two slices, one after the other.
func (s *stream) write(head, body []byte) (done int, err error) {
	var f fate
	if s.kind == mesh.Control {
		f = s.takeFate()
	}
	for len(head)+len(body) > 0 {
		n, err := s.reserve(len(head) + len(body))
		if err != nil {
			return done, err
		}
		h := min(n, len(head))
		data := append(append(make([]byte, 0, n), head[:h]...), body[:n-h]...)
		if err := s.submit(data, f); err != nil {
			return done, err
		}
		head, body, done = head[h:], body[n-h:], done+n
	}
	return done, nil
}

// reserve waits for room, and returns for how many of the next n bytes there is room. A stopped
// member waits, except on urgent streams, whose bytes are sent when the member continues. So calls
// of the stopped member that end a session do not wait.
func (s *stream) reserve(n int) (int, error) {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	for {
		if err := s.cannotWriteLocked(); err != nil {
			return 0, err
		}
		if room := s.out.roomLocked(n, s.kind == mesh.Control); room > 0 && (!s.node.stopped || s.kind == mesh.Urgent) {
			s.out.used += room
			return room, nil
		}
		if s.node.expiredLocked(s.writeLimit) {
			return 0, os.ErrDeadlineExceeded
		}
		s.waitLocked(&s.writable, s.writeLimit)
	}
}

// cannotWriteLocked returns why writing is impossible, or nil.
func (s *stream) cannotWriteLocked() error {
	if s.node.dead != nil {
		return s.node.deadLocked()
	}
	return s.writeEnd
}

// submit sends data for which there is room.
func (s *stream) submit(data []byte, f fate) error {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	if err := s.cannotWriteLocked(); err != nil {
		return err
	}
	l := s.out.link
	l.submitLocked(s.out, frame{size: len(data), loose: f.loose, extra: f.extra, deliver: func() { s.other.receive(chunk{data: data}) }})
	if f.twice {
		l.submitLocked(s.out, frame{size: len(data), loose: true, deliver: func() { s.other.receive(chunk{data, true}) }})
	}
	return nil
}

// receive handles the arrival of a chunk.
func (s *stream) receive(c chunk) {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	s.in = append(s.in, c)
	if s.readEnd != nil {
		s.discardLocked() // this side reads no more, so the writer must not wait for a reader
	}
	s.readable.Broadcast()
}

// SetReadDeadline implements mesh.Stream.
func (s *stream) SetReadDeadline(t time.Time) error { return s.setLimit(&s.readLimit, t, &s.readable) }

// SetWriteDeadline implements mesh.Stream.
func (s *stream) SetWriteDeadline(t time.Time) error {
	return s.setLimit(&s.writeLimit, t, &s.writable)
}

// setLimit sets a deadline and wakes the waiting goroutines.
func (s *stream) setLimit(limit *time.Time, t time.Time, c *sync.Cond) error {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	*limit = t
	c.Broadcast()
	return nil
}

// expiredLocked reports whether a deadline has passed. While the member is stopped, only deadlines
// before the time of Stop count as passed.
func (n *node) expiredLocked(limit time.Time) bool {
	now := time.Now()
	if n.stopped {
		now = n.stoppedAt
	}
	return !limit.IsZero() && !limit.After(now)
}

// waitLocked waits for c, at most until limit if that is in the future.
func (s *stream) waitLocked(c *sync.Cond, limit time.Time) {
	if s.node.stopped {
		s.node.streams[s] = true // Continue must wake the waiting goroutine, even if the stream has ended
	}
	if d := time.Until(limit); !limit.IsZero() && d > 0 {
		timer := time.AfterFunc(d, func() {
			c.L.Lock()
			defer c.L.Unlock()
			c.Broadcast()
		})
		defer timer.Stop()
	}
	c.Wait()
}

// CloseWrite implements mesh.Stream.
func (s *stream) CloseWrite() error {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	s.closeWriteLocked()
	return nil
}

// closeWriteLocked sends the end of this direction, unless it has ended already.
func (s *stream) closeWriteLocked() {
	if s.cannotWriteLocked() != nil {
		return
	}
	s.writeEnd = errEnded
	s.writable.Broadcast()
	s.out.dead = true
	s.out.link.submitLocked(s.out, frame{size: overhead, deliver: func() { s.other.endRead(io.EOF) }})
	s.forgetLocked()
}

// Close implements mesh.Stream. Later writes of the peer are discarded.
func (s *stream) Close() error {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	s.closeWriteLocked()
	s.endReadLocked(errEnded)
	s.discardLocked()
	return nil
}

// discardLocked discards the bytes that were not read. The peer gets the acknowledgement as if they
// were read.
func (s *stream) discardLocked() {
	for _, c := range s.in {
		if !c.free && s.other != nil {
			s.other.out.readLocked(len(c.data))
		}
	}
	s.in = nil
}

// Reset implements mesh.Stream. The peer first receives the frames in flight. Frames that are not
// transmitted yet are dropped.
func (s *stream) Reset() error {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	s.resetLocked()
	return nil
}

// resetLocked is Reset for callers with the lock.
func (s *stream) resetLocked() {
	if s.node.dead != nil || s.writeEnd != nil && s.readEnd != nil && s.out.idle() {
		return
	}
	s.breakLocked(errEnded)
	s.out.dropLocked()
	s.out.dead = true
	s.out.link.submitLocked(s.out, frame{size: overhead, deliver: s.reset})
}

// reset handles the arrival of a reset at the peer.
func (s *stream) reset() {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	if s.other != nil {
		s.other.breakLocked(errReset)
	}
}

// breakLocked ends this side at once. Bytes that have arrived but were not read are lost.
func (s *stream) breakLocked(why error) {
	s.discardLocked()
	s.cutOffLocked(why)
}

// cutOffLocked ends this side. Bytes that have arrived can still be read.
func (s *stream) cutOffLocked(why error) {
	if s.writeEnd == nil {
		s.writeEnd = why
	}
	s.out.dead = true
	if s.opening != nil {
		s.opening.endLocked(why)
	}
	s.endReadLocked(why)
	s.writable.Broadcast()
}

// endRead handles the arrival of the end of the peer's direction.
func (s *stream) endRead(why error) {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	s.endReadLocked(why)
}

// endReadLocked makes Read return the error why after the bytes that have arrived.
func (s *stream) endReadLocked(why error) {
	if s.readEnd == nil {
		s.readEnd = why
	}
	s.readable.Broadcast()
	s.forgetLocked()
}

// forgetLocked removes a stream from its member when it has ended in both directions. If the member is stopped, the stream stays,
// because its readers must be woken later.
func (s *stream) forgetLocked() {
	if s.readEnd != nil && s.writeEnd != nil && !s.node.stopped {
		delete(s.node.streams, s)
	}
}
