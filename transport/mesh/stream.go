package mesh

import (
	"bufio"
	"io"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mailbox"
)

// leadSize is how many bytes of a frame are put together before they are written, which
// saves small messages a second write. The header of one whose time the receiver takes
// goes ahead by itself: a muxer hands on what it has of a frame of its own only when
// that is complete.
const leadSize = wire.HeaderSize + mailbox.MinMeasured

// headSize is how much is read at once when a header comes, in bytes: so a small message
// takes one system call, and of a large one little is copied.
const headSize = 4 << 10

// stream is a Stream with frames, which has one reader and writers that take turns.
type stream struct {
	raw     Stream
	two     TwoWriter // raw, if that can write two slices
	watch   Observer  // raw, if that wants to know of messages
	in      io.Reader // what comes in on raw
	writers *queue
	lead    []byte // the writer's
	broken  error  // the writer's: why nothing can be written any more; nil if something can
	head    [wire.HeaderSize]byte
}

// newStream wraps a stream on which the hellos have been exchanged.
func newStream(raw Stream) *stream {
	s := &stream{raw: raw, in: raw, writers: newQueue()}
	s.watch, _ = raw.(Observer)
	s.two, _ = raw.(TwoWriter)
	if s.two == nil {
		s.lead = make([]byte, leadSize)
		return s
	}
	s.in = bufio.NewReaderSize(raw, headSize)
	s.lead = make([]byte, wire.HeaderSize)
	return s
}

// write writes a frame; it is the caller's turn. After an error, which may have left part of a
// frame, the stream cannot be written any more.
func (s *stream) write(h *wire.Header, payload []byte) error {
	if s.broken == nil {
		s.broken = s.writeFrame(h, payload)
	}
	return s.broken
}

func (s *stream) writeFrame(h *wire.Header, payload []byte) error {
	h.Length = uint64(len(payload))
	h.Encode((*[wire.HeaderSize]byte)(s.lead))
	if s.two != nil {
		return s.writeTwo(payload)
	}
	n := 0
	if len(payload) < mailbox.MinMeasured {
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

// writeTwo writes the header in lead and the payload. The header goes ahead by itself
// where the receiver takes the time of all that follows it.
func (s *stream) writeTwo(payload []byte) error {
	if n := len(payload); n >= mailbox.MinMeasured && n < mailbox.LeadFrom {
		if err := s.two.WriteTwo(s.lead, nil); err != nil {
			return err
		}
		return s.two.WriteTwo(payload, nil)
	}
	return s.two.WriteTwo(s.lead, payload)
}

// writeWithin is write with a limit of its own, for frames that end a stream.
func (s *stream) writeWithin(d time.Duration, h wire.Header, payload []byte) error {
	if err := s.raw.SetWriteDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	return s.write(&h, payload)
}

// unbuffered reads a stream, and takes no more out of it than it is asked for: files may come along
// with bytes that follow.
type unbuffered struct{ *stream }

// Read implements io.Reader.
func (u unbuffered) Read(b []byte) (int, error) {
	if u.buffered() > 0 {
		return u.in.Read(b)
	}
	return u.raw.Read(b)
}

// buffered returns how many bytes were read and wait for who wants them.
func (s *stream) buffered() int {
	if b, ok := s.in.(*bufio.Reader); ok {
		return b.Buffered()
	}
	return 0
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

// urgentFrame is a frame of an urgent stream, or why there is none.
type urgentFrame struct {
	wire.Header
	body []byte
	err  error
}

// nextUrgent reads a frame. Of one that does not belong there only the header is read.
func (s *stream) nextUrgent() urgentFrame {
	h, err := s.next()
	f := urgentFrame{Header: h, err: err}
	if err == nil && h.Kind == wire.Revoke {
		f.body, f.err = s.small(h, make([]byte, transport.MaxSignal))
	}
	return f
}
