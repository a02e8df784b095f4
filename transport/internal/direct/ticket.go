package direct

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// numberSize and keySize are the lengths of the parts of a Ticket, in bytes.
const (
	numberSize = 16
	keySize    = 32
	proofSize  = sha256.Size
	// helloSize is the length of what is said first on a connection: a number, and how
	// many connections come.
	helloSize = numberSize + 1
)

// Ticket lets one peer connect once.
type Ticket struct {
	Number [numberSize]byte // whose it is; may be seen by others
	Key    [keySize]byte    // known to the two peers only
}

// NewTicket makes a ticket that nobody can guess.
func NewTicket() Ticket {
	var t Ticket
	_, _ = rand.Read(t.Number[:]) // never fails
	_, _ = rand.Read(t.Key[:])
	return t
}

// The labels tell what is made of the key apart, so that nothing that one side says serves
// as something else.
const (
	dialLabel   = "elrun direct dial"
	waitLabel   = "elrun direct wait"
	numberLabel = "elrun direct number"
)

// errProof: the other side does not hold the ticket's key.
var errProof = errors.New("the other side does not hold the ticket")

// number returns the number of one of several connections. Who has seen one of them knows
// none of the others.
func (t *Ticket) number(i int) [numberSize]byte {
	if i == 0 {
		return t.Number
	}
	return [numberSize]byte(t.proof(fmt.Sprintf("%s %d", numberLabel, i)))
}

// proof returns what shows that its sender holds the key.
func (t *Ticket) proof(label string) []byte {
	m := hmac.New(sha256.New, t.Key[:])
	m.Write([]byte(label)) // never fails
	return m.Sum(nil)
}

// check reads the other side's proof.
func (t *Ticket) check(r io.Reader, label string) error {
	var got [proofSize]byte
	if _, err := io.ReadFull(r, got[:]); err != nil {
		return fmt.Errorf("read proof: %w", err)
	}
	if !hmac.Equal(got[:], t.proof(label)) {
		return errProof
	}
	return nil
}
