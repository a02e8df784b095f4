package colocated

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/netpoll"
)

// ErrKey: what listens there does not hold the key, or is of another user. It is not the
// peer, or that is to be reached in another way.
var ErrKey = errors.New("what listens there does not share the key")

// RefusedError is why the other side does not want a stream.
type RefusedError struct{ Code Code }

// Error implements error.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused with code %d", e.Code) }

// Stream is a stream of bytes between two processes. It has one reader and one writer at a
// time; the other methods may be called meanwhile.
type Stream struct {
	sock   *net.UnixConn
	bytes  *netpoll.Stream // of sock
	socket *Socket
	peer   string
	kind   byte

	answering sync.Mutex
	asked     *[helloSize]byte // that this side has said, until it is answered
	err       error            // why there was no answer; it stays
}

// newStream returns the stream over a socket.
func (s *Socket) newStream(sock *net.UnixConn) *Stream {
	return &Stream{sock: sock, bytes: netpoll.NewStream(sock, false), socket: s}
}

// Peer returns the ID of the other side, which has proved to hold the key: on the side that
// has dialled when something was read, or Confirm has returned.
func (s *Stream) Peer() string { return s.peer }

// Kind returns what the one who dialled wants the stream for.
func (s *Stream) Kind() byte { return s.kind }

// Sock returns the socket, for those who know that the stream was accepted, or have called
// Confirm before they read.
func (s *Stream) Sock() *net.UnixConn { return s.sock }

// Confirm waits until the other side has accepted the stream. A refusal is a *RefusedError.
func (s *Stream) Confirm() error {
	s.answering.Lock()
	defer s.answering.Unlock()
	if s.asked == nil || s.err != nil {
		return s.err
	}
	var b [answerSize]byte
	if _, err := io.ReadFull(s.bytes, b[:]); err != nil {
		s.err = fmt.Errorf("colocated: read answer: %w", err)
		return s.err
	}
	if err := decodeAnswer(&s.socket.key, s.asked, &b); err != nil {
		s.err = fmt.Errorf("colocated: dial %s: %w", s.peer, err)
		return s.err
	}
	s.asked = nil
	return nil
}

// Read implements io.Reader. It confirms first.
func (s *Stream) Read(b []byte) (int, error) {
	if err := s.Confirm(); err != nil {
		return 0, err
	}
	return s.bytes.Read(b)
}

// Write implements io.Writer. It does not wait for the other side to accept.
func (s *Stream) Write(b []byte) (int, error) { return s.bytes.Write(b) }

// CloseWrite tells the other side that nothing more comes.
func (s *Stream) CloseWrite() error { return s.sock.CloseWrite() }

// Close ends the stream after what was written, and what is being written or read.
func (s *Stream) Close() error {
	s.socket.forget(s)
	return s.sock.Close()
}

// SetDeadline is that of net.Conn.
func (s *Stream) SetDeadline(t time.Time) error { return s.sock.SetDeadline(t) }

// SetReadDeadline is that of net.Conn.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.sock.SetReadDeadline(t) }

// SetWriteDeadline is that of net.Conn. What was written in part when it passes spoils the
// stream.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.sock.SetWriteDeadline(t) }
