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
	// ErrFormat: the line is no ticket.
	ErrFormat = errors.New("not a ticket")
	// ErrUnknown: no member has issued this ticket.
	ErrUnknown = errors.New("no member knows this ticket: it was altered, or made up")
	// ErrOtherJob: the ticket is of a job of another name.
	ErrOtherJob = errors.New("the ticket is of another job")
	// ErrEnded: the job of the ticket is gone.
	ErrEnded = errors.New("the job of the ticket has ended")
	// ErrExpired: the ticket was right, but its time is over.
	ErrExpired = errors.New("ticket expired")
	// ErrUsedUp: it has let in as many as it may.
	ErrUsedUp = errors.New("ticket used up")
	// ErrRevoked: it was called back.
	ErrRevoked = errors.New("ticket revoked")
	// ErrKicked: the peer was put out for good.
	ErrKicked = errors.New("kicked out of the job")
)

// Signer signs for newcomers: a ticket, a launcher, or an identity that comes back as another.
type Signer struct {
	ID   string // its public key, in the form of an ID of libp2p
	Sign func(text []byte) []byte
}

// SignerOf returns the signer that a seed makes, which nobody may be able to guess.
func SignerOf(seed []byte) Signer {
	sum := sha256.Sum256(append([]byte("elrun key\n"), seed...))
	private := ed25519.NewKeyFromSeed(sum[:])
	public, err := crypto.UnmarshalEd25519PublicKey(private.Public().(ed25519.PublicKey))
	if err != nil {
		panic(err) // its length is right
	}
	id, err := peer.IDFromPublicKey(public)
	if err != nil {
		panic(err) // it is in the ID
	}
	return Signer{ID: id.String(), Sign: func(text []byte) []byte { return ed25519.Sign(private, text) }}
}

// Claim says by what right a newcomer joins. It names its signer by a hash, so that nobody
// learns the public key who does not know it.
type Claim struct {
	Signer    [sha256.Size]byte
	Signature [ed25519.SignatureSize]byte
}

// Claim signs for a newcomer.
func (s Signer) Claim(newcomer string) Claim {
	c := Claim{Signer: hashOf(s.ID)}
	copy(c.Signature[:], s.Sign(claimText(newcomer)))
	return c
}

func hashOf(id string) [sha256.Size]byte { return sha256.Sum256([]byte("elrun signer\n" + id)) }

// claimText is what a signer signs. libp2p puts prefixes of its own before what it signs, and
// members sign texts that begin otherwise.
func claimText(newcomer string) []byte { return []byte("elrun newcomer\n" + newcomer) }

// Names reports whether the claim says that it is of that signer.
func (c Claim) Names(signer string) bool { return c.Signer == hashOf(signer) }

// Proves reports whether the signer of an ID has signed for the newcomer.
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

// NameOf is the hash of a job's name by which a request says for which job it is.
func NameOf(job string) [8]byte {
	sum := sha256.Sum256([]byte("elrun name\n" + job))
	return [8]byte(sum[:])
}

// Request is what a newcomer says to a member. The connection has proven both IDs.
type Request struct {
	Name     [8]byte  // of the job
	Identity Identity // of the job; zero if the newcomer does not know it
	Claims   []Claim  // the first that holds counts; at most MaxClaims
}

// Credential is what a newcomer holds: what it says, and the IDs of the signers of its claims.
type Credential struct {
	Request
	Signers []string
}

// Credential returns what signers make of a newcomer that joins a job.
func (s Signer) Credential(job string, identity Identity, newcomer string) Credential {
	return Credential{Request{NameOf(job), identity, []Claim{s.Claim(newcomer)}}, []string{s.ID}}
}

// With adds a further claim.
func (c Credential) With(claim Claim, signer string) Credential {
	c.Claims = append(c.Claims[:len(c.Claims):len(c.Claims)], claim)
	c.Signers = append(c.Signers[:len(c.Signers):len(c.Signers)], signer)
	return c
}

// Admit is the answer of a job in which only this signer has a say.
func (s Signer) Admit(newcomer string, r Request) Answer {
	for i, c := range r.Claims {
		if c.Proves(s.ID, newcomer) {
			return Answer{Verdict: In, Claim: i, Signer: s.ID}
		}
	}
	return Answer{Verdict: Unknown}
}

// ClaimOf is a claim whose signature was made elsewhere.
func ClaimOf(signer string, signature []byte) Claim {
	c := Claim{Signer: hashOf(signer)}
	copy(c.Signature[:], signature)
	return c
}

// Sizes of an encoded Request and Answer in bytes, whatever they say.
const (
	MaxClaims   = 2
	claimSize   = sha256.Size + ed25519.SignatureSize
	RequestSize = 8 + 8 + 1 + MaxClaims*claimSize
	AnswerSize  = 1 + 1 + 8 + 8 + sha256.Size
)

// Encode writes the request.
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

// DecodeRequest reads what Encode wrote. Any bytes are a request.
func DecodeRequest(b [RequestSize]byte) Request {
	r := Request{Name: [8]byte(b[:]), Identity: Identity(b[8:])}
	for i := range min(int(b[16]), MaxClaims) {
		at := 17 + i*claimSize
		r.Claims = append(r.Claims, Claim{[sha256.Size]byte(b[at:]), [ed25519.SignatureSize]byte(b[at+sha256.Size:])})
	}
	return r
}

// Verdict is what a member makes of a request.
type Verdict byte

// The verdicts. Those up to Revoked come with a proof that the member is one.
const (
	In Verdict = iota + 1
	Expired
	UsedUp
	Revoked
	Kicked
	OtherJob
	Ended
	Unknown
	NotYet // the member cannot tell: it is about to join itself
)

// Answer is what a member says to a newcomer.
type Answer struct {
	Verdict Verdict
	Claim   int    // index of the claim that it is about
	Signer  string // ID of its signer, "" if unknown; not encoded
	Clock   int64  // of the member, Unix seconds
	Expiry  int64  // of the ticket, Unix seconds, if that is why
	proof   [sha256.Size]byte
}

// proved reports whether the member must show that it is one.
func (v Verdict) proved() bool { return v >= In && v <= Revoked }

// Encode writes the answer of a member to a newcomer.
func (a Answer) Encode(member, newcomer string) (b [AnswerSize]byte) {
	b[0], b[1] = byte(a.Verdict), byte(a.Claim)
	binary.LittleEndian.PutUint64(b[2:], uint64(a.Clock))
	binary.LittleEndian.PutUint64(b[10:], uint64(a.Expiry))
	if a.Verdict.proved() {
		proof := proofOf(a.Signer, member, newcomer, b[:18])
		copy(b[18:], proof[:])
	}
	return b
}

// DecodeAnswer reads what Encode wrote. Any bytes are an answer.
func DecodeAnswer(b [AnswerSize]byte) Answer {
	return Answer{Verdict: Verdict(b[0]), Claim: int(b[1]), Clock: int64(binary.LittleEndian.Uint64(b[2:])),
		Expiry: int64(binary.LittleEndian.Uint64(b[10:])), proof: [sha256.Size]byte(b[18:])}
}

// Of reports whether the answer comes from a member, which knows the keys of the signers of
// this newcomer's claims, and was made for this newcomer. Verdicts that say nothing of a
// claim need no proof, and prove nothing.
func (a Answer) Of(signers []string, member, newcomer string) bool {
	if !a.Verdict.proved() {
		return a.Verdict >= Kicked && a.Verdict <= NotYet
	}
	if a.Claim < 0 || a.Claim >= len(signers) {
		return false
	}
	want := Answer{Verdict: a.Verdict, Claim: a.Claim, Clock: a.Clock, Expiry: a.Expiry, Signer: signers[a.Claim]}.Encode(member, newcomer)
	return hmac.Equal(want[18:], a.proof[:])
}

// proofOf is a MAC by the public key of a signer, which is no secret but known to members and
// its owner only.
func proofOf(signer, member, newcomer string, says []byte) [sha256.Size]byte {
	h := hmac.New(sha256.New, []byte("elrun member\n"+signer))
	for _, w := range []string{member, newcomer, string(says)} {
		_ = binary.Write(h, binary.LittleEndian, uint32(len(w))) // a hash takes everything
		_, _ = h.Write([]byte(w))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Err returns why the newcomer is not in, for people, with what to do; nil if it is in. now is
// the newcomer's clock.
func (a Answer) Err(now time.Time) error {
	switch a.Verdict {
	case In:
		return nil
	case Expired:
		return fmt.Errorf(`%w at %s, and the member's clock says %s (this one %s): ask for a new one with "elrun ticket JOB"`,
			ErrExpired, stamp(time.Unix(a.Expiry, 0)), stamp(time.Unix(a.Clock, 0)), stamp(now))
	case UsedUp:
		return fmt.Errorf(`%w: it has let in as many peers as it may; ask for another one with "elrun ticket JOB --uses N"`, ErrUsedUp)
	case Revoked:
		return fmt.Errorf("%w: it was called back, or its issuer or a peer that came by it was kicked; ask the job's owner for a new one", ErrRevoked)
	case Kicked:
		return fmt.Errorf("%w: this peer was put out on request and is not let in again; ask the job's owner", ErrKicked)
	case OtherJob:
		return fmt.Errorf(`%w, and this one runs at its address now; ask for a new one with "elrun ticket JOB"`, ErrOtherJob)
	case Ended:
		return fmt.Errorf(`%w: another one of the same name runs at its address; ask for a new one with "elrun ticket JOB"`, ErrEnded)
	}
	return fmt.Errorf(`%w; ask for a new one with "elrun ticket JOB"`, ErrUnknown)
}

// stamp writes a time as people compare it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
