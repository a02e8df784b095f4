package mesh

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
)

// maxControls is how many control streams a pair may have. Two peers may open a stream to each
// other at the same time. Each side reads all streams, and writes to the first stream that it has,
// which keeps its messages in order.
const maxControls = 4

// controlPlane carries the control messages between this process and others, whatever views they
// are in. Messages to one peer are sent in the order of the calls of send; messages to different
// peers are independent.
type controlPlane struct {
	self    elastic.ID
	carrier Carrier
	life    *lifetime
	events  *eventQueue // gets the messages, and the beginning of the first and the end of the last stream of a peer

	// mu guards the fields below.
	mu      sync.Mutex
	streams map[elastic.ID][]*controlStream // by peer; this end writes to the first stream, and reads all
	opening map[elastic.ID]chan struct{}    // by peer; closed when the attempt to open a stream has ended
}

// newControlPlane returns the control plane of a process that has no streams yet.
func newControlPlane(c Carrier, life *lifetime, events *eventQueue) *controlPlane {
	return &controlPlane{self: c.ID(), carrier: c, life: life, events: events,
		streams: make(map[elastic.ID][]*controlStream), opening: make(map[elastic.ID]chan struct{})}
}

// send writes a message on the stream with the peer, or on a new stream if that stream has ended.
// Unless an error is final, send tries again until ctx ends. If it returns nil the message was
// written, and the peer may not have read it yet. A message whose write failed is written again on
// a new stream, so a peer that had read all of it gets it twice.
func (c *controlPlane) send(ctx context.Context, to elastic.ID, msg []byte) error {
	if len(msg) > elastic.MaxControl {
		return fmt.Errorf("message of %d bytes, at most %d", len(msg), elastic.MaxControl)
	}
	var last error
	for n := 0; ; n++ {
		if n > 1 { // the new stream has failed, too
			if err := c.life.pause(ctx, firstPause, last); err != nil {
				return err
			}
		}
		s, err := c.stream(ctx, to)
		if err != nil {
			return err
		}
		if c.stuck(to) {
			c.abandon(to, s)
			last = errNotReached
			continue
		}
		if err := s.takeTurn(ctx); err != nil {
			return err // another call is writing: it handles a stream that is stuck
		}
		err = s.write(ctx, msg)
		<-s.turn
		last = err
		if err == nil {
			return nil
		}
		c.drop(to, s)
		_ = s.Reset() // half a message may be on its way
		if ctx.Err() != nil {
			if c.stuck(to) {
				c.carrier.HangUp(to)
			}
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		// The stream had ended: connect again.
	}
}

// stuck reports whether messages to a peer wait for acknowledgements, and nothing comes from the
// peer. Both must hold for the streams of the peer: a busy peer may acknowledge late, but its own
// messages still come, and a stream on which nothing was sent proves nothing.
func (c *controlPlane) stuck(id elastic.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := false
	for _, s := range c.streams[id] {
		// A message on any of the streams shows that the peer is alive.
		since, quiet := s.silence()
		if !quiet {
			return false
		}
		waiting = waiting || since
	}
	return waiting
}

// abandon gives up the connections with a peer, including the connection of the stream s.
func (c *controlPlane) abandon(id elastic.ID, s *controlStream) {
	c.drop(id, s)
	_ = s.Reset()
	c.carrier.HangUp(id)
}

// stream returns the stream on which to write to id. If there is none, one caller opens it and the
// others wait: if each caller opened a stream of its own, messages could overtake each other.
func (c *controlPlane) stream(ctx context.Context, id elastic.ID) (*controlStream, error) {
	for {
		if s := c.first(id); s != nil {
			return s, nil
		}
		// One caller opens. The others wait until its attempt has ended, and look again.
		ended, mine := c.beginOpening(id)
		if mine {
			err := c.life.retry(ctx, func() error { return c.open(ctx, id) })
			c.endOpening(id, ended)
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

// beginOpening lets one caller at a time open a stream to id: mine is true for that caller. For
// other callers it returns the channel that is closed when the attempt to open has ended.
func (c *controlPlane) beginOpening(id elastic.ID) (ended chan struct{}, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended := c.opening[id]; ended != nil {
		return ended, false
	}
	ended = make(chan struct{})
	c.opening[id] = ended
	return ended, true
}

// endOpening wakes the callers that wait for a stream to be opened, so that they look again.
func (c *controlPlane) endOpening(id elastic.ID, ended chan struct{}) {
	c.mu.Lock()
	delete(c.opening, id)
	c.mu.Unlock()
	close(ended)
}

var errSelf = errors.New("a member cannot connect to itself")

// open opens a stream and starts its reader.
func (c *controlPlane) open(ctx context.Context, id elastic.ID) error {
	if id == c.self {
		return final{errSelf}
	}
	raw, err := c.carrier.Open(ctx, id, Control)
	if err != nil {
		return err
	}
	s, err := c.add(raw)
	if err != nil {
		return err
	}
	go func() {
		defer c.life.working.Done()
		// Streams are symmetric: the peer may write on the stream that this end has opened.
		c.read(id, s)
	}()
	return nil
}

// first returns the stream on which this end writes to id, or nil.
func (c *controlPlane) first(id elastic.ID) *controlStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if open := c.streams[id]; len(open) > 0 {
		return open[0]
	}
	return nil
}

// add registers a stream and counts its reader, which the caller runs.
func (c *controlPlane) add(raw Stream) (*controlStream, error) {
	id := raw.Peer()
	if !c.life.begin() {
		_ = raw.Reset()
		return nil, errClosed()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams[id]) >= maxControls {
		c.life.working.Done()
		_ = raw.Reset()
		return nil, errors.New("too many control streams")
	}
	s := newControl(raw)
	c.streams[id] = append(c.streams[id], s)
	return s, nil
}

// drop forgets a stream that has ended. The next message goes to the next stream of the peer, if
// there is one.
func (c *controlPlane) drop(id elastic.ID, s *controlStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.streams[id], func(o *controlStream) bool { return o == s })
	if len(left) == 0 {
		delete(c.streams, id)
		return
	}
	c.streams[id] = left
}

// accept handles a stream that a member opened.
func (c *controlPlane) accept(raw Stream) {
	s, err := c.add(raw)
	if err != nil {
		return
	}
	defer c.life.working.Done()
	c.read(raw.Peer(), s)
}

// read delivers the messages of s until s ends. It acknowledges a message before it queues the
// message: an acknowledgement says that the connection works, not that the reader of Events keeps
// up. If that reader is slow, eventQueue.message blocks, and the peer's messages stay in the
// buffers of its connection (backpressure).
func (c *controlPlane) read(id elastic.ID, s *controlStream) {
	c.events.up(id)
	throttler, _ := c.carrier.(Throttler)
	err := readMessages(s, s.acknowledged, func(msg []byte) {
		s.acknowledge()
		c.events.message(id, msg)
		if throttler != nil {
			throttler.Took(id)
		}
	})
	c.drop(id, s)
	_ = s.Reset()
	s.acks.Wait() // a write fails after Reset
	c.events.down(id, err)
}

// stuckTime is how long messages to a peer may stay unacknowledged, while nothing comes from that
// peer, before the mesh closes the connection. It serves users of the mesh that do not call Redial
// when they suspect a peer earlier.
const stuckTime = 5 * time.Second

// ackMark is sent in place of the length of a message, and acknowledges one message. A peer
// acknowledges messages in the order in which it reads them.
const ackMark = 1<<32 - 1

// controlStream carries control messages in both directions, and acknowledges each message that it
// reads. The bytes of each direction are a sequence of:
//
//	length uint32 | message      a message of at most elastic.MaxControl bytes
//	ackMark uint32               acknowledges the oldest message that is not acknowledged yet
//
// Integers are little-endian. The acknowledgements of TCP are no substitute: the kernel does not
// report them to the program, and it retransmits for minutes before it reports an error.
type controlStream struct {
	Stream
	turn chan struct{}  // a mutex with a timeout: holds a token while a goroutine writes
	acks sync.WaitGroup // owns writeAcks

	// mu guards the fields below.
	mu      sync.Mutex
	pending int // how many sent messages the peer has not acknowledged
	// since is when the peer began to owe the next acknowledgement: when the oldest pending message
	// was written, or when the message before that was acknowledged, if that was later.
	since time.Time
	heard time.Time // when the last message or acknowledgement was read
	// owed is the number of messages that were read and not acknowledged yet. acking is set while
	// writeAcks runs.
	owed   int
	acking bool
}

// newControl wraps a stream that one side has opened and the other has accepted.
func newControl(raw Stream) *controlStream {
	return &controlStream{Stream: raw, turn: make(chan struct{}, 1), heard: time.Now()}
}

// takeTurn waits until no other goroutine writes on c, or until ctx ends. The caller ends its turn
// by a receive from c.turn.
func (c *controlStream) takeTurn(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write writes one message; the caller has called takeTurn. After an error the caller must not use
// the stream any more.
func (c *controlStream) write(ctx context.Context, msg []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if watch, ok := c.Stream.(Observer); ok {
		if lost, err := watch.Sending(Outgoing{Bytes: len(msg), Payload: msg}); lost || err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
	c.sent()
	frame := append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(msg)), uint32(len(msg))), msg...)
	_, err := c.Write(frame)
	if !stop() && err == nil {
		err = context.Cause(ctx) // the message was written, but the deadline of c is now in the past
	}
	return err
}

// sent counts one more pending message. It is called before the message is written, because the
// acknowledgement may arrive before Write returns.
func (c *controlStream) sent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending++; c.pending == 1 {
		c.since = time.Now()
	}
}

// acknowledged removes the oldest pending message, because the peer has read it.
func (c *controlStream) acknowledged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = max(0, c.pending-1)
	c.heard = time.Now()
	c.since = c.heard
}

// silence reports two things about the last stuckTime: waiting is whether the peer has owed an
// acknowledgement all the time, and quiet is whether nothing has come from the peer.
func (c *controlStream) silence() (waiting, quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending > 0 && time.Since(c.since) >= stuckTime, time.Since(c.heard) >= stuckTime
}

// acknowledge lets a goroutine tell the peer that one more message was read. The reader itself does
// not write: if the readers of both sides waited to write, neither would read what the other has
// written, and both connections would stay full.
func (c *controlStream) acknowledge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	c.owed++
	if !c.acking {
		c.acking = true
		c.acks.Go(c.writeAcks)
	}
}

// writeAcks writes the acknowledgements that are owed. It ignores errors: after an error the reader
// of the stream ends, too.
func (c *controlStream) writeAcks() {
	mark := binary.LittleEndian.AppendUint32(nil, ackMark)
	for n := c.takeOwed(); n > 0; n = c.takeOwed() {
		c.turn <- struct{}{} // another writer ends at the latest with the stream
		_, _ = c.Write(bytes.Repeat(mark, n))
		<-c.turn
	}
}

// takeOwed returns the number of acknowledgements to write. After 0 writeAcks has to return.
func (c *controlStream) takeOwed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.owed
	c.owed, c.acking = 0, n > 0
	return n
}

// readMessages reads messages and acknowledgements from r, and calls deliver or acknowledged for
// each. It returns the first error. It checks the length of a message before it allocates memory
// for the message.
func readMessages(r io.Reader, acknowledged func(), deliver func([]byte)) error {
	var head [4]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n == ackMark {
			acknowledged()
			continue
		}
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
