// Package wire defines the bytes of the data plane: frames of a fixed header and a payload. All
// integers are little-endian. The package is pure. Headers are encoded and decoded without an
// allocation.
//
// A reader reads HeaderSize bytes and decodes them. Only then, when the length is known to be
// within MaxPayload, it allocates the payload:
//
//	var b [wire.HeaderSize]byte
//	if _, err := io.ReadFull(r, b[:]); err != nil { ... }
//	h, err := wire.DecodeHeader(&b)
//	if err != nil { ... }              // not a frame of this protocol: give up the stream
//	payload := make([]byte, h.Length)  // h.Length <= wire.MaxPayload(h.Kind)
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sentinels, for errors.Is: the reasons why bytes are refused.
var (
	// ErrMagic means that the bytes are no frame of this protocol.
	ErrMagic = errors.New("not an elrun frame")
	// ErrVersion means that the frame is of another version of the protocol.
	ErrVersion = errors.New("unknown protocol version")
	// ErrFormat means that a field has a value that no encoder writes.
	ErrFormat = errors.New("malformed frame")
	// ErrLimit means that a length is above its limit.
	ErrLimit = errors.New("length above limit")
)

// Kind is the type of a frame.
type Kind uint8

// Kinds of frames. The values are part of the wire format.
const (
	// Hello is the first frame of a view on a stream, in each direction. Its payload is an encoded
	// Greeting.
	Hello Kind = iota + 1
	// Data is a message. Only Data frames use Comm, Seq and Call.
	Data
	// Signal is an advisory message.
	Signal
	// Revoke ends the epoch; its payload is the encoded cause.
	Revoke
	// Bye says that its sender sends no more Data. It has no payload.
	Bye
	// Ack answers Bye and Revoke: its sender has processed them and all frames before. It has no
	// payload.
	Ack
	// Probe measures a link. Its payload has no meaning; the receiver measures how long the payload
	// takes to arrive.
	Probe
	// Offer follows a Hello. Its payload has the sender's addresses for direct connections.
	Offer
	// Choice reports which address was taken, or asks the other side to dial.
	Choice
	// Share is a message by which the ranks of one host set up shared memory.
	Share
	// Refuse rejects a Hello. Its payload is the reason.
	Refuse
	// End is the last frame of its sender in a view. The next frame is a Hello for another view. It
	// has no payload.
	End
)

// String returns the name of the kind, for errors.
func (k Kind) String() string {
	names := [...]string{"none", "hello", "data", "signal", "revoke", "bye", "ack", "probe", "offer", "choice", "share", "refuse", "end"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MaxData is the longest payload of a Data frame, in bytes. The longest message of the collectives
// is their largest segment, a quarter of it.
const MaxData = 64 << 20

// maxSmall limits signals and causes, in bytes. It equals transport.MaxSignal, which this package
// cannot import, as transport is above it.
const maxSmall = 512

// maxProbe equals transport.MaxProbe.
const maxProbe = 1 << 20

// MaxPayload returns the longest payload of a frame of kind k, in bytes. It is 0 for kinds without
// a payload and for unknown ones.
func MaxPayload(k Kind) uint64 {
	switch k {
	case Data:
		return MaxData
	case Probe:
		return maxProbe
	case Hello, Offer:
		return 4 << 10
	case Signal, Revoke, Choice, Share, Refuse:
		return maxSmall
	}
	return 0
}

// CallSize is the length in bytes of the description of a call, which is opaque here.
const CallSize = 40

// HeaderSize is the length of every header in bytes. It is the size of a cache line. The cost of 64
// bytes is negligible beside the cost of a system call.
const HeaderSize = 64

// Values at the beginning of each header.
const (
	magic0, magic1 = 'e', 'l'
	version        = 1
)

// Header precedes every payload. Comm, Seq and Call are zero except in Data frames.
type Header struct {
	Kind Kind
	// Seq and Comm identify the call within the view: its number in the sequence of its
	// communicator, and that communicator.
	Seq  uint32
	Comm uint64
	// Length is the length of the payload in bytes.
	Length uint64
	Call   [CallSize]byte
}

// Encode writes h to b:
//
//	0 magic "el"   2 version   3 kind   4 seq   8 comm   16 length   24 call
//
// It checks nothing: the caller must not pass a header that DecodeHeader refuses.
func (h *Header) Encode(b *[HeaderSize]byte) {
	b[0], b[1], b[2], b[3] = magic0, magic1, version, byte(h.Kind)
	binary.LittleEndian.PutUint32(b[4:], h.Seq)
	binary.LittleEndian.PutUint64(b[8:], h.Comm)
	binary.LittleEndian.PutUint64(b[16:], h.Length)
	copy(b[24:], h.Call[:])
}

// DecodeHeader decodes the result of Encode. If the error is nil, Length is at most
// MaxPayload(Kind). Otherwise the error wraps one of the sentinels, and no later frame of the
// stream can be read.
func DecodeHeader(b *[HeaderSize]byte) (Header, error) {
	if b[0] != magic0 || b[1] != magic1 {
		return Header{}, fmt.Errorf("wire: decode header: starts with %x: %w", b[:2], ErrMagic)
	}
	if b[2] != version {
		return Header{}, fmt.Errorf("wire: decode header: version %d, not %d: %w", b[2], version, ErrVersion)
	}
	h := Header{
		Kind:   Kind(b[3]),
		Seq:    binary.LittleEndian.Uint32(b[4:]),
		Comm:   binary.LittleEndian.Uint64(b[8:]),
		Length: binary.LittleEndian.Uint64(b[16:]),
		Call:   [CallSize]byte(b[24:]),
	}
	return h, h.check()
}

// check refuses values that no encoder writes, so that each frame has one encoding.
func (h *Header) check() error {
	if h.Kind < Hello || h.Kind > End {
		return fmt.Errorf("wire: decode header: unknown %v: %w", h.Kind, ErrFormat)
	}
	if limit := MaxPayload(h.Kind); h.Length > limit {
		return fmt.Errorf("wire: decode header: %v of %d bytes, at most %d: %w", h.Kind, h.Length, limit, ErrLimit)
	}
	if h.Kind != Data && (h.Seq != 0 || h.Comm != 0 || h.Call != [CallSize]byte{}) {
		return fmt.Errorf("wire: decode header: %v has an envelope, which only data has: %w", h.Kind, ErrFormat)
	}
	return nil
}
