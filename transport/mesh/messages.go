package mesh

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
)

// stuckTime is how long a message may go without being acknowledged. The user of the mesh may know
// earlier that a peer is silent, and then calls Redial; this limit is for the case that it does
// not.
const stuckTime = 5 * time.Second

// ackMark is sent in place of the length of a message, and acknowledges one message. A peer
// acknowledges messages in the order in which it reads them.
const ackMark = 1<<32 - 1

// controlStream carries messages, each with its length in four bytes before it, and the
// acknowledgements of the messages that came from the other side:
//
//	length uint32 | message      a message of at most elastic.MaxControl bytes
//	ackMark uint32               acknowledges the oldest message that is not acknowledged yet
//
// Integers are little-endian. TCP acknowledges bytes, too, but does not tell the program, and
// retransmits for minutes before it reports that nothing comes back.
type controlStream struct {
	Stream
	turn chan struct{} // holds a token while somebody writes

	// mu guards the fields below.
	mu      sync.Mutex
	pending int // messages that are not acknowledged
	// since is the time from which the peer is late: when the oldest pending message was written,
	// or when the message before it was acknowledged, if that was later.
	since time.Time
	heard time.Time // when the last message or acknowledgement came
}

// newControl wraps a stream that the peer has accepted.
func newControl(raw Stream) *controlStream {
	return &controlStream{Stream: raw, turn: make(chan struct{}, 1), heard: time.Now()}
}

// takeTurn waits until nobody else writes. The caller gives up its turn by a receive from s.turn.
func (s *controlStream) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write writes one message; the caller has called takeTurn. After an error the stream is unusable.
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
		err = context.Cause(ctx) // written, but the deadline has spoiled the stream
	}
	return err
}

// sent notes that a message is being written. It is called before the write, as the acknowledgement
// may come before the write returns.
func (s *controlStream) sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending++; s.pending == 1 {
		s.since = time.Now()
	}
}

// acknowledged notes that the peer has read the oldest message that was pending.
func (s *controlStream) acknowledged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = max(0, s.pending-1)
	s.heard = time.Now()
	s.since = s.heard
}

// silence reports whether a message has been pending for stuckTime, and whether nothing
// has come from the peer for stuckTime.
func (s *controlStream) silence() (waiting, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending > 0 && time.Since(s.since) >= stuckTime, time.Since(s.heard) >= stuckTime
}

// acknowledge tells the peer that a message was read. Errors need no handling: a peer that gets no
// acknowledgement for stuckTime gives up the stream.
func (s *controlStream) acknowledge() {
	s.mu.Lock()
	s.heard = time.Now()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stuckTime)
	defer cancel()
	if s.takeTurn(ctx) != nil {
		return
	}
	defer func() { <-s.turn }()
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	_, _ = s.Write(binary.LittleEndian.AppendUint32(nil, ackMark))
}

// readMessages reads until an error, which it returns. It checks the length of a message before it
// allocates memory for the message.
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
