package mesh

import (
	"bufio"
	"io"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mailbox"
)

// leadSize is the size of the buffer in which a header and a small payload are put together, so
// that a small message takes one write. If the receiver measures the time of a message, its header
// is written separately: a stream muxer delivers the bytes of one write only when all have come.
const leadSize = wire.HeaderSize + mailbox.MinMeasured

// headSize is how much is read at once when a header comes, in bytes. So a small message
// takes one system call, and little of a large message is copied.
const headSize = 4 << 10

// stream carries frames over a Stream. It has one reader, and writers that take turns. A header and
// its payload are never interleaved with other frames. A goroutine that stops in the middle of a
// frame must reset the stream.
type stream struct {
	raw Stream
	// two is raw if raw implements TwoWriter, and otherwise nil.
	two TwoWriter
	// watch is raw if raw implements Observer, and otherwise nil.
	watch   Observer
	in      io.Reader // reads from raw, with a buffer if raw is a TwoWriter
	writers *writerQueue
	// lead is the buffer of the writer whose turn it is.
	lead []byte
	// broken is the error of all later writes, or nil while the stream works. Only the writer whose
	// turn it is uses it.
	broken error
	head   [wire.HeaderSize]byte
	count  *byteCounter // gets the bytes of frames
}

// newStream wraps a stream on which the hellos have been exchanged.
func newStream(raw Stream) *stream {
	s := &stream{raw: raw, in: raw, writers: newWriterQueue(), count: new(byteCounter)}
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

// write writes a frame; the caller has the turn to write. An error may leave a part of the frame on
// the stream, so all later writes return the same error.
func (s *stream) write(h *wire.Header, payload []byte) error {
	if s.broken == nil {
		s.broken = s.writeFrame(h, payload)
		s.count.sent.Add(int64(wire.HeaderSize + len(payload)))
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
	// A short payload goes along with the header in one write. A long one is written from the
	// caller's buffer, without a copy.
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

// writeTwo writes the header in lead and the payload. It writes the header separately if the
// receiver measures the time of the whole payload.
func (s *stream) writeTwo(payload []byte) error {
	if n := len(payload); n >= mailbox.MinMeasured && n < mailbox.LeadFrom {
		if err := s.two.WriteTwo(s.lead, nil); err != nil {
			return err
		}
		return s.two.WriteTwo(payload, nil)
	}
	return s.two.WriteTwo(s.lead, payload)
}

// writeWithin is write with a time limit, for the last frames of a view.
func (s *stream) writeWithin(d time.Duration, h wire.Header, payload []byte) error {
	if err := s.raw.SetWriteDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	return s.write(&h, payload)
}

// unbuffered reads from a stream no more bytes than the caller asks for. It is for the hello on an
// idle lane, behind which a Share frame may come. Files may come with the bytes of that frame, and
// a read ahead would lose the files.
type unbuffered struct{ *stream }

// Read implements io.Reader.
func (u unbuffered) Read(b []byte) (int, error) {
	if u.buffered() > 0 {
		return u.in.Read(b)
	}
	return u.raw.Read(b)
}

// buffered returns how many bytes are in the read buffer.
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
	h, err := wire.DecodeHeader(&s.head)
	s.count.received.Add(int64(wire.HeaderSize) + int64(h.Length))
	return h, err
}

// small reads the payload of a frame that is not Data into b. b has room for the longest payload
// that wire allows.
func (s *stream) small(h wire.Header, b []byte) ([]byte, error) {
	b = b[:h.Length]
	_, err := io.ReadFull(s.in, b)
	return b, err
}

// urgentFrame is a frame of an urgent stream, or the error of reading it.
type urgentFrame struct {
	wire.Header
	body []byte
	err  error
}

// nextUrgent reads a frame of an urgent stream. Only a Revoke or Signal frame has a body there; of
// any other frame it reads only the header.
func (s *stream) nextUrgent() urgentFrame {
	h, err := s.next()
	f := urgentFrame{Header: h, err: err}
	if err == nil && (h.Kind == wire.Revoke || h.Kind == wire.Signal) {
		f.body, f.err = s.small(h, make([]byte, transport.MaxSignal))
	}
	return f
}
