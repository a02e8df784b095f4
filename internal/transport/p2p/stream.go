package p2p

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/elrun/elrun/internal/wire"
)

// leadSize is how many bytes of a frame are put together before they are written: a
// muxer's largest frame with its header. It saves small messages a second write.
const leadSize = 64<<10 - 12

// stream is a libp2p stream of frames, with one reader and writers that take turns.
type stream struct {
	raw  network.Stream
	turn chan struct{} // holds a token while somebody writes
	lead []byte        // the writer's
	head [wire.HeaderSize]byte
}

// newStream wraps a stream on which the hellos have been exchanged.
func newStream(raw network.Stream) *stream {
	return &stream{raw: raw, turn: make(chan struct{}, 1), lead: make([]byte, leadSize)}
}

// write writes a frame; it is the caller's turn. After an error the stream cannot be
// written any more.
func (s *stream) write(h *wire.Header, payload []byte) error {
	h.Length = uint64(len(payload))
	h.Encode((*[wire.HeaderSize]byte)(s.lead))
	n := copy(s.lead[wire.HeaderSize:], payload)
	if _, err := s.raw.Write(s.lead[:wire.HeaderSize+n]); err != nil {
		return err
	}
	if n == len(payload) {
		return nil
	}
	_, err := s.raw.Write(payload[n:])
	return err
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
	if _, err := io.ReadFull(s.raw, s.head[:]); err != nil {
		return wire.Header{}, err
	}
	return wire.DecodeHeader(&s.head)
}

// small reads the payload of a frame that is not Data into b, which has room for all
// that wire allows.
func (s *stream) small(h wire.Header, b []byte) ([]byte, error) {
	b = b[:h.Length]
	_, err := io.ReadFull(s.raw, b)
	return b, err
}

// sendHello writes g as a Hello frame.
func sendHello(w io.Writer, g wire.Greeting) error {
	body, err := g.Append(nil)
	if err != nil {
		return err
	}
	var head [wire.HeaderSize]byte
	h := wire.Header{Kind: wire.Hello, Length: uint64(len(body))}
	h.Encode(&head)
	_, err = w.Write(append(head[:], body...))
	return err
}

// readHello reads a Hello frame.
func readHello(r io.Reader) (wire.Greeting, error) {
	var head [wire.HeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return wire.Greeting{}, fmt.Errorf("read hello: %w", err)
	}
	h, err := wire.DecodeHeader(&head)
	if err != nil {
		return wire.Greeting{}, fmt.Errorf("read hello: %w", err)
	}
	if h.Kind != wire.Hello {
		return wire.Greeting{}, fmt.Errorf("read hello: got %v: %w", h.Kind, wire.ErrFormat)
	}
	body := make([]byte, h.Length)
	if _, err := io.ReadFull(r, body); err != nil {
		return wire.Greeting{}, fmt.Errorf("read hello: %w", err)
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
