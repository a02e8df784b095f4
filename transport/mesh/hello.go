package mesh

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elrun/elrun/transport/internal/wire"
)

// The reasons for which a peer refuses a stream.
var (
	// errRefused: the stream is for another job, or for a view that the peer is not in.
	errRefused = errors.New("refused: another job or view")
	// errStale: the stream is for an epoch that is over at the peer.
	errStale = errors.New("the peer is in a later view")
)

// overError: the stream is for a view that the peer had entered, and that is over at the peer.
type overError struct {
	cause []byte // the encoded cause of the revocation; empty if the peer has closed the view
}

// Error implements error.
func (o *overError) Error() string { return "the peer has left the view" }

// Is makes a view that is over match errStale, too.
func (o *overError) Is(target error) bool { return target == errStale }

// refusal is the first byte of a Refuse frame, which answers a hello. Each refusal but the zero one
// is final: the peer knows the view, or knows that it will never enter it. A peer that may still
// enter the view keeps the stream (parkedStream), and a peer that is about to close resets it.
type refusal byte

// The refusals. The value accepted means that the stream is not refused.
const (
	accepted refusal = iota
	refused
	stale
	viewOver // the peer has left the view; if the view was revoked, the cause follows in the frame
)

// error returns the error for a refusal; cause has the bytes behind the refusal in its frame.
func (r refusal) error(cause []byte) error {
	switch r {
	case stale:
		return final{errStale}
	case viewOver:
		return final{&overError{cause}}
	}
	return final{errRefused}
}

// refuseTime is how long a refusal may take to be written.
const refuseTime = 5 * time.Second

// refuse answers a hello with a refusal, then ends the stream. With viewOver, cause is the encoded
// cause of the revocation, or empty if the view was closed; otherwise it is nil.
func refuse(s Stream, r refusal, cause []byte) {
	err := s.SetWriteDeadline(time.Now().Add(refuseTime))
	if err == nil {
		_, err = s.Write(wire.AppendFrame(nil, wire.Refuse, append([]byte{byte(r)}, cause...)))
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	_ = s.Close()
}

// sendHello writes g as a Hello frame, in one call of Write, because an Upgrader adds its offer of
// other paths to that call.
func sendHello(w io.Writer, g wire.Greeting) error {
	body, err := g.Append(nil)
	if err == nil {
		_, err = w.Write(wire.AppendFrame(nil, wire.Hello, body))
	}
	return err
}

// readHello reads a Hello frame, or the refusal that comes in its place.
func readHello(r io.Reader) (wire.Greeting, error) {
	kind, body, err := wire.ReadFrame(r, wire.Hello, wire.Refuse)
	switch {
	case err != nil:
		return wire.Greeting{}, err
	// The first byte is the kind of the refusal. The other bytes depend on that kind.
	case kind == wire.Refuse && len(body) > 0:
		return wire.Greeting{}, refusal(body[0]).error(body[1:])
	case kind == wire.Refuse:
		return wire.Greeting{}, fmt.Errorf("read hello: an empty refusal: %w", wire.ErrFormat)
	}
	return wire.DecodeGreeting(body)
}
