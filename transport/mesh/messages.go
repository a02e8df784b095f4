package mesh

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
)

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
