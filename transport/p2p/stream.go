package p2p

import (
	"bufio"
	"errors"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mailbox"
)

// leadSize is how many bytes of a frame are put together before they are written, which
// saves small messages a second write. The header of one whose time the receiver takes
// goes ahead by itself: a muxer hands on what it has of a frame of its own only when
// that is complete.
const leadSize = wire.HeaderSize + mailbox.GaugeLeast

// headSize is how much is read at once when a header comes, in bytes: so a small message
// takes one system call, and of a large one little is copied.
const headSize = 4 << 10

// stream is a line with frames, which has one reader and writers that take turns.
type stream struct {
	raw     line
	conn    *direct.Conn // raw, if that is a connection of its own
	in      io.Reader    // what comes in on raw
	writers *queue
	lead    []byte // the writer's
	head    [wire.HeaderSize]byte
}

// newStream wraps a stream on which the hellos have been exchanged.
func newStream(l link) *stream {
	s := &stream{raw: l.line, conn: l.conn, in: l.line, writers: newQueue()}
	if s.conn == nil {
		s.lead = make([]byte, leadSize)
		return s
	}
	s.in = bufio.NewReaderSize(l.line, headSize)
	s.lead = make([]byte, wire.HeaderSize)
	return s
}

// write writes a frame; it is the caller's turn. After an error the stream cannot be
// written any more.
func (s *stream) write(h *wire.Header, payload []byte) error {
	h.Length = uint64(len(payload))
	h.Encode((*[wire.HeaderSize]byte)(s.lead))
	if s.conn != nil {
		return s.writeDirect(payload)
	}
	n := 0
	if len(payload) < mailbox.GaugeLeast {
		n = copy(s.lead[wire.HeaderSize:], payload)
	}
	if _, err := s.raw.Write(s.lead[:wire.HeaderSize+n]); err != nil {
		return err
	}
	if n == len(payload) {
		return nil
	}
	_, err := s.raw.Write(payload[n:])
	return err
}

// writeDirect writes the header in lead and the payload. The header goes ahead by itself
// where the receiver takes the time of all that follows it.
func (s *stream) writeDirect(payload []byte) error {
	if n := len(payload); n >= mailbox.GaugeLeast && n < mailbox.GaugeLong {
		if err := s.conn.WriteTwo(s.lead, nil); err != nil {
			return err
		}
		return s.conn.WriteTwo(payload, nil)
	}
	return s.conn.WriteTwo(s.lead, payload)
}

// writeWithin is write with a limit of its own, for frames that end a stream.
func (s *stream) writeWithin(d time.Duration, h wire.Header, payload []byte) error {
	if err := s.raw.SetWriteDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	return s.write(&h, payload)
}

// next reads a header.
func (s *stream) next() (wire.Header, error) {
	if _, err := io.ReadFull(s.in, s.head[:]); err != nil {
		return wire.Header{}, err
	}
	return wire.DecodeHeader(&s.head)
}

// small reads the payload of a frame that is not Data into b, which has room for all
// that wire allows.
func (s *stream) small(h wire.Header, b []byte) ([]byte, error) {
	b = b[:h.Length]
	_, err := io.ReadFull(s.in, b)
	return b, err
}

// sendHello writes g as a Hello frame.
func sendHello(w io.Writer, g wire.Greeting) error {
	b, err := appendHello(nil, g)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// appendHello appends the frame to b.
func appendHello(b []byte, g wire.Greeting) ([]byte, error) {
	body, err := g.Append(nil)
	return appendFrame(b, wire.Hello, body), err
}

// readHello reads a Hello frame.
func readHello(r io.Reader) (wire.Greeting, error) {
	body, err := readFrame(r, wire.Hello)
	if err != nil {
		return wire.Greeting{}, err
	}
	return wire.DecodeGreeting(body)
}

// Why a peer does not want a stream, now or later.
var (
	// errRefused: it is of another job, or the peer is not in that view.
	errRefused = errors.New("refused: another job or view")
	// errStale: it is of an epoch that the peer has done with.
	errStale = errors.New("the peer has gone on to a later view")
)

// The codes that tell a reason to the other side of a stream.
const (
	refusedCode network.StreamErrorCode = 0x656c
	busyCode    network.StreamErrorCode = 0x656d
	staleCode   network.StreamErrorCode = 0x656e
)

// refuse resets s for good.
func refuse(s network.Stream, code network.StreamErrorCode) { _ = s.ResetWithError(code) }

// refusal returns the reason in place of the error of a stream that was refused.
func refusal(err error) error {
	var reset *network.StreamError
	if !errors.As(err, &reset) || !reset.Remote {
		return err
	}
	switch reset.ErrorCode {
	case refusedCode:
		return final{errRefused}
	case staleCode:
		return final{errStale}
	case busyCode:
		return final{errBusy}
	}
	return err
}
