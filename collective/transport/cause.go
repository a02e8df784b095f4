package transport

import (
	"encoding/binary"
	"errors"
	"strings"
)

// maxText bounds each text of an encoded cause, in bytes.
const maxText = 200

// Kinds of encoded causes, the first byte. They are part of the wire format.
const (
	causeAbort    = iota + 1 // rank, text
	causePeer                // rank, ID of the peer, text
	causeMismatch            // two ranks, two calls, text
	causeMistake             // as causeAbort, with Mistake
	causeDeadlock            // number of ranks; of each: rank, communicator, 1 for a Send, call
)

// EncodeCause encodes the cause of a revocation for other ranks, in at most MaxSignal bytes; longer
// texts are truncated, and so are longer deadlocks. self is the rank that revokes. An error other
// than *MismatchError, *DeadlockError, *PeerError and *AbortError becomes an *AbortError of self.
func EncodeCause(self int, cause error) []byte {
	switch e := CauseOf(self, cause).(type) {
	case *MismatchError:
		b := appendRanks([]byte{causeMismatch}, e.RankA, e.RankB)
		return appendText(e.B.Append(e.A.Append(b)), e.Detail)
	case *DeadlockError:
		return e.append([]byte{causeDeadlock})
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
	return nil // never happens: CauseOf returns an error of one of these types
}

// maxWaits bounds the ranks of an encoded deadlock.
const maxWaits = 8

// append appends the encoded deadlock to b.
func (d *DeadlockError) append(b []byte) []byte {
	waits := d.Waits[:min(len(d.Waits), maxWaits)]
	b = append(b, byte(len(waits)))
	for _, w := range waits {
		b = binary.LittleEndian.AppendUint64(appendRanks(b, w.Rank), w.Comm)
		sends := byte(0)
		if w.Sends {
			sends = 1
		}
		b = w.Call.Append(append(b, sends))
	}
	return b
}

// CauseOf returns the cause with which err revokes at all ranks: the *MismatchError,
// *DeadlockError, *PeerError or *AbortError in its chain, or else an *AbortError of rank self with
// the text of err. Its field Mistake is set if err is ErrMistake. A nil err means a revocation
// without a reason.
func CauseOf(self int, err error) error {
	if err == nil {
		err = ErrRevoked
	}
	var m *MismatchError
	var d *DeadlockError
	var p *PeerError
	var a *AbortError
	switch {
	case errors.As(err, &m):
		return m
	case errors.As(err, &d):
		return d
	case errors.As(err, &p):
		return p
	case errors.As(err, &a):
		return a
	}
	return &AbortError{Rank: self, Cause: err.Error(), Mistake: errors.Is(err, ErrMistake)}
}

// DecodeCause reads the output of EncodeCause. It never fails: bytes that cannot be decoded
// become an *AbortError of from, the rank that sent them.
func DecodeCause(from int, b []byte) error {
	d := causeDecoder{b: b}
	switch kind := d.byte(); kind {
	case causeMismatch:
		e := &MismatchError{RankA: d.rank(), RankB: d.rank(), A: d.call(), B: d.call(), Detail: d.text()}
		if d.ok() {
			return e
		}
	case causeDeadlock:
		e := new(DeadlockError)
		for range min(d.byte(), maxWaits) {
			e.Waits = append(e.Waits, DeadlockWait{Rank: d.rank(), Comm: binary.LittleEndian.Uint64(d.next(8)), Sends: d.byte() == 1, Call: d.call()})
		}
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

// appendRanks appends ranks in four bytes each, little-endian.
func appendRanks(b []byte, ranks ...int) []byte {
	for _, r := range ranks {
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(r)))
	}
	return b
}

// appendText appends the length of s in one byte, then s, truncated to maxText bytes of
// valid UTF-8.
func appendText(b []byte, s string) []byte {
	s = strings.ToValidUTF8(s[:min(len(s), maxText)], "")
	return append(append(b, byte(len(s))), s...)
}

// causeDecoder reads an encoded cause from front to back. After a short read all further
// values are zero, and ok returns false; so the caller checks once, at the end.
type causeDecoder struct {
	b     []byte
	short bool
}

// next returns the next n bytes, or n zeros if there are too few.
func (c *causeDecoder) next(n int) []byte {
	if c.short || len(c.b) < n {
		c.short = true
		return make([]byte, n)
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *causeDecoder) byte() byte { return c.next(1)[0] }

func (c *causeDecoder) rank() int { return int(int32(binary.LittleEndian.Uint32(c.next(4)))) }

func (c *causeDecoder) text() string { return strings.ToValidUTF8(string(c.next(int(c.byte()))), "?") }

func (c *causeDecoder) call() Call {
	call, _ := DecodeCall(c.next(CallSize)) // next gives the length that DecodeCall wants
	return call
}

// ok reports whether the cause had exactly the bytes that were read.
func (c *causeDecoder) ok() bool { return !c.short && len(c.b) == 0 }
