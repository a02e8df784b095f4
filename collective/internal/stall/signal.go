package stall

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// Kind distinguishes asks, tells and notes.
type Kind uint8

// The kinds of signals. The values are part of the wire format.
const (
	Ask  Kind = 1 // asks where the receiver is in relation to the call of the envelope
	Tell Kind = 2 // answers an ask, or reports news to an earlier asker
	Note Kind = 3 // no Signal follows, but a note of the program (collective.Notes)
)

// State is the position of a rank in relation to a call about which another rank asked.
type State uint8

// The states. The values are part of the wire format.
const (
	Unasked State = iota // no answer
	Present              // in the call
	NotYet               // has not begun the call
	Past                 // has ended the call; its last messages may still be in flight
	Closed               // will never begin the call, as it has closed the communicator
)

// Signal is a message between the watchdogs of two ranks. It is sent as a transport.Signal, which
// has at most transport.MaxSignal bytes; this limits the length of the path.
type Signal struct {
	Kind Kind
	transport.Envelope
	// At is the time of the ask, by the clock of the asker. A tell returns it unchanged, so that
	// the asker can compute the round-trip time; At is 0 in a tell of news, which answers no ask.
	At time.Duration

	// The fields of a tell.
	State State
	End   End
	// Blocker is the call that blocks the sender; Kind 0 for none.
	Blocker transport.Envelope
	// Sends is set if Blocker is a Send.
	Sends bool
	// Full is set if the sender reads no more messages of the receiver until it receives some.
	Full bool
}

// The bits of the flags in an encoded signal.
const (
	flagSends = 1 << iota
	flagFull
	flagWhole
	flagsEnd
)

// MaxPath is the maximum number of ranks of End.Path in a signal. Append leaves out the later ranks
// of a longer path.
const MaxPath = 160

// Sizes of encoded envelopes and of signals with an empty path, in bytes.
const (
	envelopeSize = 8 + 4 + transport.CallSize
	signalSize   = 1 + envelopeSize + 8 + 3 + 6*4 + 2*8 + envelopeSize + 1
)

// Append appends the encoded signal to b. All integers are little-endian. The path comes
// last: its length in one byte, then two bytes per rank; the path ends before the first
// rank that needs more than two bytes.
func (s *Signal) Append(b []byte) []byte {
	b = appendEnvelope(append(b, byte(s.Kind)), &s.Envelope)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.At))
	b = append(b, byte(s.State), byte(s.End.Cause), s.flags())
	for _, v := range []int32{s.End.Rank, s.End.Hops, s.End.Anchor.Rank, s.End.Anchor.Hops, s.End.Slow.From, s.End.Slow.To} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(s.End.Anchor.Since))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.End.Slow.ResponseTime))
	b = appendEnvelope(b, &s.Blocker)
	path := s.End.Path[:min(len(s.End.Path), MaxPath)]
	if i := slices.IndexFunc(path, func(rank int32) bool { return rank > math.MaxUint16 }); i >= 0 {
		path = path[:i]
	}
	b = append(b, byte(len(path)))
	for _, rank := range path {
		b = binary.LittleEndian.AppendUint16(b, uint16(rank))
	}
	return b
}

// flags returns the flags of the signal as bits.
func (s *Signal) flags() (bits byte) {
	for i, set := range []bool{s.Sends, s.Full, s.End.Anchor.Whole} {
		if set {
			bits |= 1 << i
		}
	}
	return bits
}

// appendEnvelope appends the fields of an envelope that identify a call. The priority is not sent.
func appendEnvelope(b []byte, e *transport.Envelope) []byte {
	b = binary.LittleEndian.AppendUint64(b, e.Comm)
	return e.Call.Append(binary.LittleEndian.AppendUint32(b, e.Seq))
}

// Decode reads the output of Append. It returns an error for a wrong length, for values
// outside their ranges, and for ranks outside 0 to ranks-1: signals come from other
// processes.
func Decode(b []byte, ranks int) (Signal, error) {
	if len(b) < signalSize || len(b) != signalSize+2*int(b[signalSize-1]) {
		return Signal{}, fmt.Errorf("stall: decode signal: %d bytes, want %d or more", len(b), signalSize)
	}
	r := reader{b}
	s := Signal{Kind: Kind(r.byte()), Envelope: r.envelope()}
	s.At = time.Duration(r.uint64())
	s.State, s.End.Cause = State(r.byte()), Cause(r.byte())
	flags := r.byte()
	s.Sends, s.Full, s.End.Anchor.Whole = flags&flagSends != 0, flags&flagFull != 0, flags&flagWhole != 0
	for _, v := range []*int32{&s.End.Rank, &s.End.Hops, &s.End.Anchor.Rank, &s.End.Anchor.Hops, &s.End.Slow.From, &s.End.Slow.To} {
		*v = int32(r.uint32())
	}
	s.End.Anchor.Since = time.Duration(r.uint64())
	s.End.Slow.ResponseTime = time.Duration(r.uint64())
	s.Blocker = r.envelope()
	for range r.byte() {
		s.End.Path = append(s.End.Path, int32(r.uint16()))
	}
	if s.Kind != Ask && s.Kind != Tell || s.State > Closed || s.End.Cause > Silent || flags >= flagsEnd || !s.End.isValid(ranks) {
		return Signal{}, fmt.Errorf("stall: decode signal: a field is out of range for %d ranks", ranks)
	}
	return s, nil
}

// reader reads a signal from front to back. Decode has checked the length before.
type reader struct{ b []byte }

// next returns the next n bytes.
func (r *reader) next(n int) []byte {
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte     { return r.next(1)[0] }
func (r *reader) uint16() uint16 { return binary.LittleEndian.Uint16(r.next(2)) }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.next(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.next(8)) }

// envelope reads an encoded envelope.
func (r *reader) envelope() transport.Envelope {
	e := transport.Envelope{Comm: r.uint64(), Seq: r.uint32()}
	e.Call, _ = transport.DecodeCall(r.next(transport.CallSize)) // next gives the length that DecodeCall wants
	return e
}
