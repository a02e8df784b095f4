package member

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The encoding of a message is one byte of version, one byte of kind, and the fields of Message in
// order. Integers are unsigned varints; strings and lists have a length before their elements; a
// part that may be missing has a byte 0 or 1 before it. A kind has exactly the parts that layout
// names, so every message has one encoding.

// MaxMessage is the longest encoded message, in bytes. It equals elastic.MaxControl, which this
// package must not import.
const MaxMessage = 4 << 20

// codecVersion is the first byte of every message. It changes with the encoding.
const codecVersion = 4

// The errors of Decode, to be tested with errors.Is.
var (
	// ErrFormat means that the bytes are not an encoded message of this version.
	ErrFormat = errors.New("malformed message")
	// ErrLimit means that a length is above its limit.
	ErrLimit = errors.New("length above limit")
)

// part is a set of optional parts of a message. Encode and Decode read the same table (layout), so
// they cannot disagree on the fields of a kind.
type part uint16

// The optional parts, by the field of Message that each encodes. partChain covers the base or its
// hash, the key and the changes of a Chain, and partBranch and partGather the two forms of
// Message.Spread.
const (
	partBallot part = 1 << iota
	partSeen
	partChange
	partReport
	partChain
	partRequest
	partSignature
	partBranch
	partGather
)

// layout returns the parts of a kind; ok is false for an unknown kind.
func layout(k Kind) (p part, ok bool) {
	switch k {
	case Status, Fence:
		return 0, true
	case Ask:
		return partRequest, true
	case Tell:
		return partReport, true
	case Prepare:
		return partBallot, true
	case Accepted:
		return partBallot | partSignature, true
	case Promise:
		return partBallot | partSeen | partChange | partReport, true
	case Reject:
		return partBallot | partSeen, true
	case Accept:
		return partBallot | partChange, true
	case Chain:
		return partChain, true
	case Branch:
		return partBranch, true
	case Gather:
		return partGather, true
	}
	return 0, false
}

// Encode appends m to b and returns the result. From and To are not encoded. An unknown kind is a
// mistake of the caller and gives bytes that Decode refuses.
func Encode(b []byte, m Message) []byte {
	parts, _ := layout(m.Kind)
	b = append(b, codecVersion, byte(m.Kind))
	b = binary.AppendUvarint(b, m.Epoch)
	b = append(b, m.View[:]...)
	b = appendParts(b, m, parts)
	if parts&(partBranch|partGather) != 0 {
		b = appendSpread(b, m, parts)
	}
	return b
}

// appendParts appends the optional parts.
func appendParts(b []byte, m Message, parts part) []byte {
	if parts&partBallot != 0 {
		b = appendBallot(b, m.Ballot)
	}
	if parts&partSeen != 0 {
		b = appendBallot(b, m.Seen)
	}
	if parts&partChange != 0 {
		// A Promise of a voter that has accepted nothing has no change. This differs from a Promise
		// with an empty change.
		b = appendBool(b, m.Change != nil)
		if m.Change != nil {
			b = appendChange(b, *m.Change)
		}
	}
	if parts&partReport != 0 {
		b = appendReport(b, m.Report)
	}
	if parts&partChain != 0 {
		b = appendChain(b, m)
	}
	if parts&partRequest != 0 {
		b = appendBool(b, m.Request != nil)
		if m.Request != nil {
			b = appendRequest(b, *m.Request)
		}
	}
	if parts&partSignature != 0 {
		b = appendString(b, string(m.Signature))
	}
	return b
}

// Decode decodes one message that fills b. The result shares no memory with b, has no list that is
// longer than its limit, and has all fields that its kind requires. The caller sets From and To.
// Errors wrap ErrFormat or ErrLimit.
func Decode(b []byte) (Message, error) {
	if len(b) > MaxMessage {
		return Message{}, fmt.Errorf("member: decode %d bytes: %w", len(b), ErrLimit)
	}
	d := &decoder{rest: b}
	version, kind := d.byte(), Kind(d.byte())
	parts, known := layout(kind)
	// The version is checked first: in another version the format of all other fields is unknown.
	if d.err == nil && (version != codecVersion || !known) {
		d.fail(fmt.Errorf("version %d, message %v, want version %d and a known message: %w", version, kind, codecVersion, ErrFormat))
	}
	m := Message{Kind: kind, Epoch: d.uint(), View: d.hash()}
	d.parts(&m, parts)
	if parts&(partBranch|partGather) != 0 {
		d.spread(&m, parts)
	}
	// Each message has one encoding, so nothing may follow its fields.
	if d.err == nil && len(d.rest) > 0 {
		d.fail(fmt.Errorf("%d bytes left over: %w", len(d.rest), ErrFormat))
	}
	if d.err != nil {
		return Message{}, fmt.Errorf("member: decode %v: %w", kind, d.err)
	}
	return m, nil
}

// parts decodes the optional parts in the order in which appendParts writes them.
func (d *decoder) parts(m *Message, parts part) {
	if parts&partBallot != 0 {
		m.Ballot = d.ballot()
	}
	if parts&partSeen != 0 {
		m.Seen = d.ballot()
	}
	if parts&partChange != 0 && d.bool() {
		c := d.change()
		m.Change = &c
	}
	if parts&partReport != 0 {
		r := d.report()
		m.Report = &r
	}
	if parts&partChain != 0 {
		d.chain(m)
	}
	if parts&partRequest != 0 && d.bool() {
		r := d.request()
		m.Request = &r
	}
	if parts&partSignature != 0 {
		m.Signature = d.signature()
	}
	// Only a Promise may be without a change.
	if m.Kind == Accept && m.Change == nil {
		d.fail(fmt.Errorf("no change: %w", ErrFormat))
	}
}
