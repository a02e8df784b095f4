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

// takeTurn waits until no other goroutine writes on s, or until ctx ends. The caller ends its turn
// by a receive from s.turn.
func (s *controlStream) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write writes one message; the caller has called takeTurn. After an error the caller must not use
// the stream any more.
func (s *controlStream) write(ctx context.Context, msg []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if watch, ok := s.Stream.(Observer); ok {
		if lost, err := watch.Sending(Outgoing{Bytes: len(msg), Payload: msg}); lost || err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = s.SetWriteDeadline(time.Unix(1, 0)) })
	s.sent()
	frame := append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(msg)), uint32(len(msg))), msg...)
	_, err := s.Write(frame)
	if !stop() && err == nil {
		err = context.Cause(ctx) // the message was written, but the deadline of s is now in the past
	}
	return err
}

// sent counts one more pending message. It is called before the message is written, because the
// acknowledgement may arrive before Write returns.
func (s *controlStream) sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending++; s.pending == 1 {
		s.since = time.Now()
	}
}

// acknowledged removes the oldest pending message, because the peer has read it.
func (s *controlStream) acknowledged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = max(0, s.pending-1)
	s.heard = time.Now()
	s.since = s.heard
}

// silence reports two things about the last stuckTime: waiting is whether the peer has owed an
// acknowledgement all the time, and quiet is whether nothing has come from the peer.
func (s *controlStream) silence() (waiting, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending > 0 && time.Since(s.since) >= stuckTime, time.Since(s.heard) >= stuckTime
}

// acknowledge lets a goroutine tell the peer that one more message was read. The reader itself does
// not write: if the readers of both sides waited to write, neither would read what the other has
// written, and both connections would stay full.
func (s *controlStream) acknowledge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	s.owed++
	if !s.acking {
		s.acking = true
		s.acks.Go(s.writeAcks)
	}
}

// writeAcks writes the acknowledgements that are owed. It ignores errors: after an error the reader
// of the stream ends, too.
func (s *controlStream) writeAcks() {
	mark := binary.LittleEndian.AppendUint32(nil, ackMark)
	for n := s.takeOwed(); n > 0; n = s.takeOwed() {
		s.turn <- struct{}{} // another writer ends at the latest with the stream
		_, _ = s.Write(bytes.Repeat(mark, n))
		<-s.turn
	}
}

// takeOwed returns the number of acknowledgements to write. After 0 writeAcks has to return.
func (s *controlStream) takeOwed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.owed
	s.owed, s.acking = 0, n > 0
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
