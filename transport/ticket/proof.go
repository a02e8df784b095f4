package ticket

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"time"
)

// KeySize is the length of keys, secrets and MACs in bytes.
const KeySize = sha256.Size

// MAC shows that its maker holds a key. It is good for one direction between two IDs.
type MAC [KeySize]byte

// Proof is what a peer holds to prove itself: the key of a ticket, or the secret.
type Proof struct {
	Expiry int64 // Unix seconds; 0: Key is the job's secret, which does not expire
	Key    []byte
}

// BySecret returns the proof of a peer that holds the job's secret.
func BySecret(secret []byte) Proof { return Proof{Key: secret} }

// Newcomer returns what the newcomer with that ID shows to the member.
func (p Proof) Newcomer(newcomer, member string) MAC { return p.mac("newcomer", newcomer, member) }

// Member returns what the member answers to the newcomer. It differs from the
// newcomer's, so that neither can be answered with itself.
func (p Proof) Member(newcomer, member string) MAC { return p.mac("member", member, newcomer) }

// Equal compares in constant time.
func (m MAC) Equal(other MAC) bool { return hmac.Equal(m[:], other[:]) }

// Claim is what a newcomer says to a member. The connection has proven both IDs.
type Claim struct {
	Newcomer, Member string // IDs
	Expiry           int64  // as in Proof
	MAC              MAC
}

// Claim returns what the newcomer says.
func (p Proof) Claim(newcomer, member string) Claim {
	return Claim{Newcomer: newcomer, Member: member, Expiry: p.Expiry, MAC: p.Newcomer(newcomer, member)}
}

// Check is the member's side: it returns the proof that the newcomer has shown to hold.
// ErrWrong says that it does not. ErrExpired comes with the Proof, for the answer: the
// newcomer was right once. A claim costs the same whatever it says.
func (c Claim) Check(secret []byte, job string, now time.Time) (Proof, error) {
	p := Proof{Expiry: c.Expiry, Key: keyOf(secret, job, c.Expiry)}
	if c.Expiry == 0 {
		p = BySecret(secret)
	}
	if !c.MAC.Equal(p.Newcomer(c.Newcomer, c.Member)) {
		return Proof{}, ErrWrong
	}
	if c.Expiry != 0 && now.Unix() > c.Expiry {
		return p, fmt.Errorf("%w at %s", ErrExpired, time.Unix(c.Expiry, 0).UTC().Format(time.RFC3339))
	}
	return p, nil
}

// ClaimSize is the length of an encoded Claim in bytes.
const ClaimSize = 8 + KeySize

// Encode returns the part of the claim that is sent: the IDs are known to both.
func (c Claim) Encode() [ClaimSize]byte {
	var b [ClaimSize]byte
	binary.LittleEndian.PutUint64(b[:], uint64(c.Expiry))
	copy(b[8:], c.MAC[:])
	return b
}

// DecodeClaim reads what Encode wrote, whose sender and receiver are known. Any bytes are
// a claim; Check finds out.
func DecodeClaim(b [ClaimSize]byte, newcomer, member string) Claim {
	return Claim{Newcomer: newcomer, Member: member,
		Expiry: int64(binary.LittleEndian.Uint64(b[:])), MAC: MAC(b[8:])}
}

// keyOf makes the key of a ticket.
func keyOf(secret []byte, job string, expiry int64) []byte {
	h := hmac.New(sha256.New, secret)
	writeText(h, "ticket")
	writeText(h, job)
	_ = binary.Write(h, binary.LittleEndian, expiry) // a hash takes everything
	return h.Sum(nil)
}

// mac covers the direction and both IDs.
func (p Proof) mac(words ...string) MAC {
	h := hmac.New(sha256.New, p.Key)
	for _, w := range words {
		writeText(h, w)
	}
	return MAC(h.Sum(nil))
}

// writeText writes s behind its length, so that no two lists of words are written alike.
func writeText(h hash.Hash, s string) {
	_ = binary.Write(h, binary.LittleEndian, uint32(len(s)))
	_, _ = h.Write([]byte(s))
}
