package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Sentinels, for errors.Is. Every error of a call that talked to other ranks is
// also ErrRevoked: its communicator, and all that share its transport, are at an
// end, and the contents of its destination are undefined.
var (
	// ErrRevoked: the communicator can no longer be used.
	ErrRevoked = errors.New("communicator revoked")
	// ErrMismatch: ranks made different calls; errors.As gives *MismatchError.
	ErrMismatch = errors.New("mismatched calls")
	// ErrPeer: a rank died or cannot be reached; errors.As gives *PeerError.
	ErrPeer = errors.New("peer lost")
	// ErrClosed: the communicator was closed at this rank.
	ErrClosed = errors.New("communicator closed")
	// ErrArgument: a slice, root, count or reduction does not fit the call, or is nil.
	ErrArgument = errors.New("bad argument")
	// ErrMistake: the program of a rank has made a mistake, which comes again on any other
	// communicator: mismatched calls, a bad argument, concurrent calls, a panic in a call, or
	// an *AbortError with Mistake. Every ErrMismatch is one.
	ErrMistake = errors.New("mistake of the program")
	// ErrConcurrent: a call was made while its communicator was in a blocking one, which
	// only another goroutine can do. The ranks may differ in which of the two came first.
	ErrConcurrent = errors.New("concurrent calls on one communicator")
)

// MismatchError says that two ranks made different calls where one was due. In all
// errors ranks are those of the transport, also on communicators made by Split.
type MismatchError struct {
	RankA, RankB int
	A, B         Call
	// Detail, if set, says what differs where the calls look alike.
	Detail string
}

// Error names both ranks and their calls.
func (e *MismatchError) Error() string {
	s := fmt.Sprintf("mismatched calls: rank %d called %v, rank %d called %v", e.RankA, e.A, e.RankB, e.B)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Is reports ErrMismatch, ErrMistake and ErrRevoked.
func (e *MismatchError) Is(target error) bool {
	return target == ErrMismatch || target == ErrMistake || target == ErrRevoked
}

// PeerError says which rank was lost and how that was seen.
type PeerError struct {
	Rank  int
	Peer  string // the peer's ID, or empty
	Cause string // reset, closed, silent, ...: for people
}

// Error names the rank, its peer and the cause.
func (e *PeerError) Error() string {
	if e.Peer == "" {
		return fmt.Sprintf("peer lost: rank %d: %s", e.Rank, e.Cause)
	}
	return fmt.Sprintf("peer lost: rank %d (%s): %s", e.Rank, e.Peer, e.Cause)
}

// Is reports ErrPeer and ErrRevoked.
func (e *PeerError) Is(target error) bool { return target == ErrPeer || target == ErrRevoked }

// AbortError says that a rank gave up for a reason of its own: a cancelled context,
// a bad argument, a Revoke of the user's.
type AbortError struct {
	Rank  int
	Cause string
	// Mistake: the reason is one of the program's own, so that it would come again.
	Mistake bool
}

// Error names the rank and its reason.
func (e *AbortError) Error() string { return fmt.Sprintf("revoked by rank %d: %s", e.Rank, e.Cause) }

// Is reports ErrRevoked, and ErrMistake if it is one.
func (e *AbortError) Is(target error) bool {
	return target == ErrRevoked || e.Mistake && target == ErrMistake
}

// maxText bounds the free text of an encoded cause, in bytes.
const maxText = 200

// Kinds of encoded causes; part of the wire format.
const (
	causeAbort = iota + 1
	causePeer
	causeMismatch
	causeMistake // an abort with Mistake
)

// EncodeCause writes the reason of a revocation for other ranks, in at most
// MaxSignal bytes. self is the rank that revokes: an error which is none of the
// three types above becomes an *AbortError of self.
func EncodeCause(self int, cause error) []byte {
	switch e := causeOf(self, cause).(type) {
	case *MismatchError:
		b := appendRanks([]byte{causeMismatch}, e.RankA, e.RankB)
		return appendText(e.B.Append(e.A.Append(b)), e.Detail)
	case *PeerError:
		b := appendRanks([]byte{causePeer}, e.Rank)
		return appendText(appendText(b, e.Peer), e.Cause)
	case *AbortError:
		kind := byte(causeAbort)
		if e.Mistake {
			kind = causeMistake
		}
		return appendText(appendRanks([]byte{kind}, e.Rank), e.Cause)
	}
	return nil // causeOf returns one of the three
}

// causeOf finds the typed error in err, or makes it an *AbortError of self.
func causeOf(self int, err error) error {
	if err == nil {
		err = ErrRevoked // a user's Revoke without a reason
	}
	var m *MismatchError
	var p *PeerError
	var a *AbortError
	switch {
	case errors.As(err, &m):
		return m
	case errors.As(err, &p):
		return p
	case errors.As(err, &a):
		return a
	}
	return &AbortError{Rank: self, Cause: err.Error(), Mistake: isMistake(err)}
}

// isMistake reports whether an error of this rank is a mistake of its program.
func isMistake(err error) bool {
	for _, kind := range []error{ErrMistake, ErrArgument, ErrConcurrent, errPanicked} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// DecodeCause reads what EncodeCause wrote. from is the rank it came from, blamed
// when the bytes make no sense.
func DecodeCause(from int, b []byte) error {
	d := causeDecoder{b: b}
	switch kind := d.byte(); kind {
	case causeMismatch:
		e := &MismatchError{RankA: d.rank(), RankB: d.rank(), A: d.call(), B: d.call(), Detail: d.text()}
		if d.ok() {
			return e
		}
	case causePeer:
		e := &PeerError{Rank: d.rank(), Peer: d.text(), Cause: d.text()}
		if d.ok() {
			return e
		}
	case causeAbort, causeMistake:
		e := &AbortError{Rank: d.rank(), Cause: d.text(), Mistake: kind == causeMistake}
		if d.ok() {
			return e
		}
	}
	return &AbortError{Rank: from, Cause: "sent a revocation that cannot be read"}
}

func appendRanks(b []byte, ranks ...int) []byte {
	for _, r := range ranks {
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(r)))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	s = strings.ToValidUTF8(s[:min(len(s), maxText)], "")
	return append(append(b, byte(len(s))), s...)
}

// causeDecoder reads an encoded cause front to back; after a short read all that
// follows is zero and ok reports false.
type causeDecoder struct {
	b     []byte
	short bool
}

func (d *causeDecoder) take(n int) []byte {
	if d.short || len(d.b) < n {
		d.short = true
		return make([]byte, n)
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *causeDecoder) byte() byte { return d.take(1)[0] }

func (d *causeDecoder) rank() int { return int(int32(binary.LittleEndian.Uint32(d.take(4)))) }

func (d *causeDecoder) text() string { return strings.ToValidUTF8(string(d.take(int(d.byte()))), "?") }

func (d *causeDecoder) call() Call {
	c, _ := DecodeCall(d.take(CallSize)) // take gives the length that DecodeCall wants
	return c
}

func (d *causeDecoder) ok() bool { return !d.short && len(d.b) == 0 }
