package direct

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// Lengths of the parts of a Ticket, and of a proof, in bytes.
const (
	numberSize = 16
	keySize    = 32
	proofSize  = sha256.Size
	// greetingSize is the length of the first message on a connection: a number, and the number of
	// connections, or hostStream.
	greetingSize = numberSize + 1
)

// Ticket lets one peer connect once. It is sent to that peer over an encrypted connection. On the
// new connection the dialler sends Number in the clear. Neither side sends Key: each proves by an
// HMAC that it holds Key. The two HMACs have different labels, so that no side can send back the
// HMAC that it has received.
type Ticket struct {
	Number [numberSize]byte // names the Wait; may be seen by others
	Key    [keySize]byte    // secret of the two peers

	claim string // of a stream within the host: what the dialler sends after the number
}

// NewTicket returns a fresh random ticket.
func NewTicket() Ticket {
	var t Ticket
	_, _ = rand.Read(t.Number[:]) // never fails
	_, _ = rand.Read(t.Key[:])
	return t
}

// Labels for domain separation: a proof for one purpose is never valid for another.
const (
	dialLabel   = "elrun direct dial"
	waitLabel   = "elrun direct wait"
	numberLabel = "elrun direct number"
)

// ErrProof means that the other side does not hold the key.
var ErrProof = errors.New("the other side does not hold the key")

// number returns the number of connection i of several. An observer of one number cannot compute
// the others.
func (t *Ticket) number(i int) [numberSize]byte {
	if i == 0 {
		return t.Number
	}
	return [numberSize]byte(t.proof(fmt.Sprintf("%s %d", numberLabel, i)))
}

// proof returns the HMAC of label by the ticket's key.
func (t *Ticket) proof(label string) []byte {
	m := hmac.New(sha256.New, t.Key[:])
	m.Write([]byte(label)) // never fails
	return m.Sum(nil)
}

// check reads the other side's proof, and returns the index of its label. The comparison takes
// constant time.
func (t *Ticket) check(r io.Reader, labels ...string) (int, error) {
	var got [proofSize]byte
	if _, err := io.ReadFull(r, got[:]); err != nil {
		return 0, fmt.Errorf("read proof: %w", err)
	}
	for i, l := range labels {
		if hmac.Equal(got[:], t.proof(l)) {
			return i, nil
		}
	}
	return 0, ErrProof
}
