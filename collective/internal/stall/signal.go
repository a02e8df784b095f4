package stall

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// Kind is what a signal does.
type Kind uint8

// The kinds of signals. The values are part of the wire format.
const (
	Ask  Kind = 1 // where is the receiver in relation to the call of the envelope?
	Tell Kind = 2 // the answer
)

// State is where a rank is in relation to a call that it was asked about.
type State uint8

// The states. The values are part of the wire format.
const (
	Unasked State = iota // no answer
	Present              // in the call
	NotYet               // not there yet
	Past                 // has ended it, as its messages on the way will show
	Closed               // will not make it, as it has closed the communicator
)

// Signal is a message between the watches of two ranks.
type Signal struct {
	Kind Kind
	transport.Envelope
	At time.Duration // when the ask was sent, by the clock of its sender; a tell brings it back, or has 0 if it is news

	// Of a tell:
	State State
	End   End
	Rival transport.Envelope // a blocking call of that communicator in which its sender is instead; Kind 0 for none
}

// MostPath bounds the ranks of an End that travel.
const MostPath = 180

const (
	envelopeSize = 8 + 4 + transport.CallSize
	signalSize   = 1 + envelopeSize + 8 + 2 + 6*4 + 8 + 4 + transport.CallSize + 1
)

// Append appends the encoded signal to b.
func (s *Signal) Append(b []byte) []byte {
	b = appendEnvelope(append(b, byte(s.Kind)), &s.Envelope)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.At))
	b = append(b, byte(s.State), byte(s.End.Why))
	for _, v := range []int32{s.End.Rank, s.End.Hops, s.End.Same, s.End.Firm, s.End.Slow.From, s.End.Slow.To} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(s.End.Slow.Took))
	b = s.Rival.Call.Append(binary.LittleEndian.AppendUint32(b, s.Rival.Seq))
	path := s.End.Path[:min(len(s.End.Path), MostPath)]
	if i := slices.IndexFunc(path, func(rank int32) bool { return rank > math.MaxUint16 }); i >= 0 {
		path = path[:i]
	}
	b = append(b, byte(len(path)))
	for _, rank := range path {
		b = binary.LittleEndian.AppendUint16(b, uint16(rank))
	}
	return b
}

func appendEnvelope(b []byte, e *transport.Envelope) []byte {
	b = binary.LittleEndian.AppendUint64(b, e.Comm)
	return e.Call.Append(binary.LittleEndian.AppendUint32(b, e.Seq))
}

// Decode reads what Append wrote, of one of so many ranks.
func Decode(b []byte, ranks int) (Signal, error) {
	if len(b) < signalSize || len(b) != signalSize+2*int(b[signalSize-1]) {
		return Signal{}, fmt.Errorf("stall: decode signal: %d bytes, want %d or more", len(b), signalSize)
	}
	r := reader{b}
	s := Signal{Kind: Kind(r.byte())}
	s.Comm, s.Seq, s.Call = r.uint64(), r.uint32(), r.call()
	s.At = time.Duration(r.uint64())
	s.State, s.End.Why = State(r.byte()), Why(r.byte())
	for _, v := range []*int32{&s.End.Rank, &s.End.Hops, &s.End.Same, &s.End.Firm, &s.End.Slow.From, &s.End.Slow.To} {
		*v = int32(r.uint32())
	}
	s.End.Slow.Took = time.Duration(r.uint64())
	s.Rival = transport.Envelope{Comm: s.Comm, Seq: r.uint32(), Call: r.call()}
	for range r.byte() {
		s.End.Path = append(s.End.Path, int32(r.uint16()))
	}
	if s.Kind != Ask && s.Kind != Tell || s.State > Closed || s.End.Why > Silent || !s.End.fits(ranks) {
		return Signal{}, fmt.Errorf("stall: decode signal: one that no rank of %d sends", ranks)
	}
	return s, nil
}

// reader reads a signal front to back, whose length is known to suffice.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) call() transport.Call {
	c, _ := transport.DecodeCall(r.take(transport.CallSize)) // take gives the length that DecodeCall wants
	return c
}
