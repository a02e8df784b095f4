// Package wire defines the bytes of the data plane: frames of a fixed header and a
// payload, all integers little-endian. It is pure and allocates nothing but the job
// name of a Hello.
//
// A reader takes HeaderSize bytes, decodes them, and only then, with the length known
// to be within MaxPayload, makes room for the payload:
//
//	var b [wire.HeaderSize]byte
//	if _, err := io.ReadFull(r, b[:]); err != nil { ... }
//	h, err := wire.DecodeHeader(&b)
//	if err != nil { ... }              // not a frame of ours: give up the stream
//	payload := make([]byte, h.Length)  // h.Length <= wire.MaxPayload(h.Kind)
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sentinels, for errors.Is: why bytes are refused.
var (
	// ErrMagic: the bytes are no frame of this protocol at all.
	ErrMagic = errors.New("not an elrun frame")
	// ErrVersion: a frame of another version of the protocol.
	ErrVersion = errors.New("unknown protocol version")
	// ErrFormat: a field has a value that no encoder writes.
	ErrFormat = errors.New("malformed frame")
	// ErrLimit: a length is above its limit.
	ErrLimit = errors.New("length above limit")
)

// Kind says what a frame carries.
type Kind uint8

// The kinds of frames. The values are part of the wire format.
const (
	// Hello opens a stream, in both directions; its payload is an encoded Hello.
	Hello Kind = iota + 1
	// Data is a message; Comm, Seq and Call belong to it alone.
	Data
	// Signal is an advisory message.
	Signal
	// Revoke ends the epoch; its payload is the encoded cause.
	Revoke
	// Bye says that its sender sends no more Data. It has no payload.
	Bye
	// Ack answers Bye and Revoke: they, and all that came before, were taken in. It has
	// no payload.
	Ack
	// Probe has a payload that means nothing: its receiver takes the time of it.
	Probe
	// Offer follows a Hello: where its sender can be reached in other ways.
	Offer
	// Choice says which of these ways was taken, or has the other side try one.
	Choice
	// Share is about memory that the ranks of one host share.
	Share
	// Refuse answers a Hello that is not wanted; its payload says why.
	Refuse
	// End is the last frame of its sender in a view: what follows is a Hello for another one.
	// It has no payload.
	End
)

// String returns the name used in errors.
func (k Kind) String() string {
	names := [...]string{"none", "hello", "data", "signal", "revoke", "bye", "ack", "probe", "offer", "choice", "share", "refuse", "end"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MaxData is the longest payload of a Data frame, in bytes. The collectives send nothing
// longer than their largest segment, which is a quarter of it.
const MaxData = 64 << 20

// maxSmall limits signals and causes. It equals transport.MaxSignal, which this
// package is too low to import.
const maxSmall = 512

// maxProbe equals transport.MaxProbe, as maxSmall does MaxSignal.
const maxProbe = 1 << 20

// MaxPayload returns the longest payload of a frame of kind k, in bytes; 0 for kinds
// without payload and for unknown ones.
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

// CallSize is the length of the opaque description of a call, in bytes.
const CallSize = 40

// HeaderSize is the length of every header in bytes. It is a cache line: the 64 bytes
// cost nothing next to a system call.
const HeaderSize = 64

const (
	magic0, magic1 = 'e', 'l'
	version        = 1
)

// Header precedes every payload. Comm, Seq and Call are zero in all but Data frames.
type Header struct {
	Kind   Kind
	Seq    uint32
	Comm   uint64
	Length uint64 // of the payload, in bytes
	Call   [CallSize]byte
}

// Encode writes h to b:
//
//	0 magic "el"   2 version   3 kind   4 seq   8 comm   16 length   24 call
//
// It checks nothing; what DecodeHeader refuses is the caller's mistake.
func (h *Header) Encode(b *[HeaderSize]byte) {
	b[0], b[1], b[2], b[3] = magic0, magic1, version, byte(h.Kind)
	binary.LittleEndian.PutUint32(b[4:], h.Seq)
	binary.LittleEndian.PutUint64(b[8:], h.Comm)
	binary.LittleEndian.PutUint64(b[16:], h.Length)
	copy(b[24:], h.Call[:])
}

// DecodeHeader reads what Encode wrote. A nil error says that Length is within
// MaxPayload(Kind). Otherwise the error is one of the sentinels, wrapped, and the
// stream cannot be read any further.
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

// check refuses what no encoder writes, so that each frame has one encoding.
func (h *Header) check() error {
	if h.Kind < Hello || h.Kind > End {
		return fmt.Errorf("wire: decode header: %v: %w", h.Kind, ErrFormat)
	}
	if limit := MaxPayload(h.Kind); h.Length > limit {
		return fmt.Errorf("wire: decode header: %v of %d bytes, at most %d: %w", h.Kind, h.Length, limit, ErrLimit)
	}
	if h.Kind != Data && (h.Seq != 0 || h.Comm != 0 || h.Call != [CallSize]byte{}) {
		return fmt.Errorf("wire: decode header: %v with an envelope: %w", h.Kind, ErrFormat)
	}
	return nil
}
