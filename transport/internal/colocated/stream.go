package colocated

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/netpoll"
)

// Stream is a stream of bytes between two processes. It allows one reader and one writer at a time;
// the other methods may be called meanwhile.
type Stream struct {
	sock  *net.UnixConn
	bytes *netpoll.Stream // reads and writes sock
	key   *Key            // checks the answer
	ended func(*Stream)   // called by Close
	peer  string
	kind  byte

	answering sync.Mutex
	// asked is the hello of this side. It is nil at the listener, and once the hello was accepted.
	asked *[helloSize]byte
	// err is the error with which Confirm has failed. Later calls return it, too.
	err error
}

// Peer returns the ID of the other side. At the dialler the other side has proven that it holds the
// key only after the first read, or after Confirm.
func (s *Stream) Peer() string { return s.peer }

// Kind returns the kind of stream that the dialler has asked for.
func (s *Stream) Kind() byte { return s.kind }

// Sock returns the socket. The caller must call Confirm before it reads from the socket.
func (s *Stream) Sock() *net.UnixConn { return s.sock }

// Confirm waits until the other side has accepted the stream. A refusal is a *RefusedError, and a
// listener without the key gives ErrKey. Later calls return the same result without waiting.
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
	if err := decodeAnswer(s.key, s.asked, &b); err != nil {
		s.err = fmt.Errorf("colocated: dial %s: %w", s.peer, err)
		return s.err
	}
	s.asked = nil
	return nil
}

// Read implements io.Reader. It calls Confirm first.
func (s *Stream) Read(b []byte) (int, error) {
	if err := s.Confirm(); err != nil {
		return 0, err
	}
	return s.bytes.Read(b)
}

// Write implements io.Writer. It does not wait for the other side to accept the stream.
func (s *Stream) Write(b []byte) (int, error) { return s.bytes.Write(b) }

// CloseWrite ends the bytes of this side: the other side reads io.EOF after them.
func (s *Stream) CloseWrite() error { return s.sock.CloseWrite() }

// Close ends the stream and interrupts reads and writes. Bytes that were written are still
// delivered.
func (s *Stream) Close() error {
	s.ended(s)
	return s.sock.Close()
}

// SetDeadline implements the method of net.Conn.
func (s *Stream) SetDeadline(t time.Time) error { return s.sock.SetDeadline(t) }

// SetReadDeadline implements the method of net.Conn.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.sock.SetReadDeadline(t) }

// SetWriteDeadline implements the method of net.Conn. A write that it interrupts may leave a
// partial message, after which the stream cannot be used.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.sock.SetWriteDeadline(t) }
