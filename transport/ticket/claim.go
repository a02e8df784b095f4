package ticket

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// Sentinels, for errors.Is.
var (
	// ErrFormat means that the line is no ticket.
	ErrFormat = errors.New("not a ticket")
	// ErrUnknown means that no member has a record of this ticket.
	ErrUnknown = errors.New("no member knows this ticket: it was altered, or made up")
	// ErrOtherJob means that the ticket is of a job with another name.
	ErrOtherJob = errors.New("the ticket is of another job")
	// ErrEnded means that the job of the ticket does not run any more.
	ErrEnded = errors.New("the job of the ticket has ended")
	// ErrExpired means that the ticket is genuine, but has expired.
	ErrExpired = errors.New("ticket expired")
	// ErrUsedUp means that the ticket has admitted as many peers as it may.
	ErrUsedUp = errors.New("ticket used up")
	// ErrRevoked means that the ticket was revoked.
	ErrRevoked = errors.New("ticket revoked")
	// ErrKicked means that the peer was put out for good.
	ErrKicked = errors.New("kicked out of the job")
)

// Signer signs the claims of newcomers. It is the key of a ticket, the key of a launcher, or the
// old identity of a peer that comes back under a new one.
type Signer struct {
	ID   string // public key, in the form of a libp2p peer ID
	Sign func(text []byte) []byte
}

// SignerOf returns the signer whose Ed25519 key is derived from seed. The seed is a secret.
func SignerOf(seed []byte) Signer {
	sum := sha256.Sum256(append([]byte("elrun key\n"), seed...))
	private := ed25519.NewKeyFromSeed(sum[:])
	public, err := crypto.UnmarshalEd25519PublicKey(private.Public().(ed25519.PublicKey))
	if err != nil {
		panic(err) // never happens: an Ed25519 key has the right length
	}
	id, err := peer.IDFromPublicKey(public)
	if err != nil {
		panic(err) // never happens: the ID of an Ed25519 key is made of the key itself
	}
	return Signer{ID: id.String(), Sign: func(text []byte) []byte { return ed25519.Sign(private, text) }}
}

// Claim is a signature for a newcomer, which proves its right to join. It names its signer by a
// hash, so that a claim does not reveal the public key of the signer.
type Claim struct {
	Signer    [sha256.Size]byte
	Signature [ed25519.SignatureSize]byte
}

// Claim signs for the newcomer with that ID.
func (s Signer) Claim(newcomer string) Claim {
	c := Claim{Signer: hashOf(s.ID)}
	copy(c.Signature[:], s.Sign(claimText(newcomer)))
	return c
}

// hashOf returns the hash by which a claim names its signer.
func hashOf(id string) [sha256.Size]byte { return sha256.Sum256([]byte("elrun signer\n" + id)) }

// claimText returns the text that a signer signs. The beginning of the text separates domains:
// libp2p puts its own prefixes before the texts that it signs, and members sign texts with other
// beginnings.
func claimText(newcomer string) []byte { return []byte("elrun newcomer\n" + newcomer) }

// Names reports whether the claim names that signer.
func (c Claim) Names(signer string) bool { return c.Signer == hashOf(signer) }

// Proves reports whether the claim has a valid signature of that signer for the newcomer.
func (c Claim) Proves(signer, newcomer string) bool {
	id, err := peer.Decode(signer)
	if err != nil || !c.Names(signer) {
		return false
	}
	public, err := id.ExtractPublicKey()
	if err != nil {
		return false
	}
	ok, err := public.Verify(claimText(newcomer), c.Signature[:])
	return ok && err == nil
}

// NameOf returns the hash of a job's name by which a request names its job.
func NameOf(job string) [8]byte {
	sum := sha256.Sum256([]byte("elrun name\n" + job))
	return [8]byte(sum[:])
}

// Request is the message of a newcomer to a member. The connection has proven both IDs. It has a
// fixed size and no length that a stranger chooses, so a member reads it without allocating.
type Request struct {
	Name [8]byte // NameOf the job
	// Identity is the identity of the job; zero if the newcomer does not know it.
	Identity Identity
	// Claims are at most MaxClaims claims, of which the first valid one counts.
	Claims []Claim
}

// Credential is the request of a newcomer, with the IDs of the signers of its claims. The newcomer
// needs these IDs to check the answer.
type Credential struct {
	Request
	Signers []string
}

// Credential returns the credential of a newcomer to a job, with a claim of s.
func (s Signer) Credential(job string, identity Identity, newcomer string) Credential {
	return Credential{Request{NameOf(job), identity, []Claim{s.Claim(newcomer)}}, []string{s.ID}}
}

// With returns c with a further claim, by the signer with that ID. It does not change c: both
// slices are copied when they grow.
func (c Credential) With(claim Claim, signer string) Credential {
	c.Claims = append(c.Claims[:len(c.Claims):len(c.Claims)], claim)
	c.Signers = append(c.Signers[:len(c.Signers):len(c.Signers)], signer)
	return c
}

// Admit returns the answer of a job with s as its only signer: In for the first claim with a valid
// signature, and otherwise Unknown.
func (s Signer) Admit(newcomer string, r Request) Answer {
	for i, c := range r.Claims {
		if c.Proves(s.ID, newcomer) {
			return Answer{Decision: In, Claim: i, Signer: s.ID}
		}
	}
	return Answer{Decision: Unknown}
}

// ClaimOf returns the claim of a signer whose signature over claimText was made elsewhere. If the
// signature is not by that signer, the claim proves nothing.
func ClaimOf(signer string, signature []byte) Claim {
	c := Claim{Signer: hashOf(signer)}
	copy(c.Signature[:], signature)
	return c
}

// Sizes of an encoded Request and an encoded Answer in bytes. Both are fixed.
const (
	MaxClaims   = 2
	claimSize   = sha256.Size + ed25519.SignatureSize
	RequestSize = 8 + 8 + 1 + MaxClaims*claimSize
	AnswerSize  = 1 + 1 + 8 + 8 + sha256.Size
)

// Encode returns the encoded request: 0 name, 8 identity, 16 number of claims, 17 claims.
func (r Request) Encode() (b [RequestSize]byte) {
	copy(b[:], r.Name[:])
	copy(b[8:], r.Identity[:])
	claims := r.Claims[:min(len(r.Claims), MaxClaims)]
	b[16] = byte(len(claims))
	for i, c := range claims {
		at := 17 + i*claimSize
		copy(b[at:], c.Signer[:])
		copy(b[at+sha256.Size:], c.Signature[:])
	}
	return b
}

// DecodeRequest decodes a request. There are no invalid bytes: claims that nobody has signed are
// decoded like others, and prove nothing.
func DecodeRequest(b [RequestSize]byte) Request {
	r := Request{Name: [8]byte(b[:]), Identity: Identity(b[8:])}
	for i := range min(int(b[16]), MaxClaims) {
		at := 17 + i*claimSize
		r.Claims = append(r.Claims, Claim{[sha256.Size]byte(b[at:]), [ed25519.SignatureSize]byte(b[at+sha256.Size:])})
	}
	return r
}

// Decision is the result of a request: admission, or the reason for the refusal. The values are
// part of the format of an Answer. Their order says how definite a decision is: a member that
// checks several claims answers with the lowest.
type Decision byte

// The decisions. In, Expired, UsedUp and Revoked come with a proof that the sender is a member.
const (
	In Decision = iota + 1
	Expired
	UsedUp
	Revoked
	Kicked
	OtherJob
	Ended
	Unknown
	NotYet  // the peer cannot decide: it is in no view yet
	Outside // the peer cannot decide: it is a newcomer itself
)

// Answer is the message of a member to a newcomer. Its proof covers the decision and both IDs, so
// an answer can neither be changed on the way nor be repeated by another peer.
type Answer struct {
	Decision Decision
	Claim    int // index of the claim in question
	// Signer is the ID of the signer of that claim; "" if unknown. It is not encoded.
	Signer string
	Clock  int64 // the member's time, in Unix seconds
	Expiry int64 // the ticket's expiry, in Unix seconds, with Expired
	proof  [sha256.Size]byte
}

// proved reports whether an answer with this decision needs a proof.
func (d Decision) proved() bool { return d >= In && d <= Revoked }

// Encode returns the encoded answer of a member to a newcomer: 0 decision, 1 claim, 2 clock, 10
// expiry, 18 proof.
func (a Answer) Encode(member, newcomer string) (b [AnswerSize]byte) {
	b[0], b[1] = byte(a.Decision), byte(a.Claim)
	binary.LittleEndian.PutUint64(b[2:], uint64(a.Clock))
	binary.LittleEndian.PutUint64(b[10:], uint64(a.Expiry))
	if a.Decision.proved() {
		proof := proofOf(a.Signer, member, newcomer, b[:18])
		copy(b[18:], proof[:])
	}
	return b
}

// DecodeAnswer decodes an answer. All bytes are valid.
func DecodeAnswer(b [AnswerSize]byte) Answer {
	return Answer{Decision: Decision(b[0]), Claim: int(b[1]), Clock: int64(binary.LittleEndian.Uint64(b[2:])),
		Expiry: int64(binary.LittleEndian.Uint64(b[10:])), proof: [sha256.Size]byte(b[18:])}
}

// Of reports whether a member has made the answer for this newcomer: the proof is valid for the
// signer of the newcomer's claim, whose public key only members know. Decisions that are not about
// a claim need no proof, and prove nothing.
func (a Answer) Of(signers []string, member, newcomer string) bool {
	if !a.Decision.proved() {
		return a.Decision >= Kicked && a.Decision <= Outside
	}
	if a.Claim < 0 || a.Claim >= len(signers) {
		return false
	}
	want := Answer{Decision: a.Decision, Claim: a.Claim, Clock: a.Clock, Expiry: a.Expiry, Signer: signers[a.Claim]}.Encode(member, newcomer)
	return hmac.Equal(want[18:], a.proof[:])
}

// proofOf returns a MAC with a signer's public key as the key. The public key is no secret, but
// only members and the holder of the ticket know it.
func proofOf(signer, member, newcomer string, says []byte) [sha256.Size]byte {
	h := hmac.New(sha256.New, []byte("elrun member\n"+signer))
	for _, w := range []string{member, newcomer, string(says)} {
		_ = binary.Write(h, binary.LittleEndian, uint32(len(w))) // a hash accepts everything
		_, _ = h.Write([]byte(w))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Err returns nil for In, and otherwise a message for the user, with the reason and the remedy. now
// is the newcomer's clock.
func (a Answer) Err(now time.Time) error {
	switch a.Decision {
	case In:
		return nil
	case Expired:
		return fmt.Errorf(`%w at %s, and the member's clock says %s (this host's %s): ask for a new one with "elrun ticket JOB"`,
			ErrExpired, stamp(time.Unix(a.Expiry, 0)), stamp(time.Unix(a.Clock, 0)), stamp(now))
	case UsedUp:
		return fmt.Errorf(`%w: as many peers have joined with it as it allows; ask for another one with "elrun ticket JOB --uses N"`, ErrUsedUp)
	case Revoked:
		return fmt.Errorf("%w: it was revoked, or a peer that issued it or joined with it was kicked; ask the job's owner for a new one", ErrRevoked)
	case Kicked:
		return fmt.Errorf("%w: this peer was kicked and may not join again; ask the job's owner", ErrKicked)
	case OtherJob:
		return fmt.Errorf(`%w, and a job of another name runs at its address now; ask for a new one with "elrun ticket JOB"`, ErrOtherJob)
	case Ended:
		return fmt.Errorf(`%w: another job of the same name runs at its address; ask for a new one with "elrun ticket JOB"`, ErrEnded)
	}
	return fmt.Errorf(`%w; ask for a new one with "elrun ticket JOB"`, ErrUnknown)
}

// stamp formats a time as RFC 3339 in UTC, so that users can compare two times.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
