package member

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Keys signs with the private key of one process and verifies the signatures of all processes. The
// ID of a process must determine its public key. Both operations are deterministic and without side
// effects.
type Keys interface {
	// Sign returns the signature of text by this process, at most MaxSignature bytes.
	Sign(text []byte) []byte
	// Verify reports whether signature is the signature of text by the process id.
	Verify(id ID, text, signature []byte) bool
}

// MaxSignature is the longest signature, in bytes. An ed25519 signature has 64.
const MaxSignature = 128

// Decision is a change with the proof that it was decided.
type Decision struct {
	Change Change
	Proof  Certificate
}

// String returns the change and the ranks of the signers.
func (d Decision) String() string {
	s := d.Change.String() + " by"
	for _, v := range d.Proof.Votes {
		s += fmt.Sprintf(" %d", v.Rank)
	}
	return s
}

// Certificate proves a decision: it holds enough signed acceptances of one ballot to decide the
// change. Any peer that knows the view before the change can verify the certificate, whatever peer
// has sent it.
type Certificate struct {
	Ballot Ballot
	Votes  []Vote // at most one per rank
}

// Vote is one signed acceptance.
type Vote struct {
	Rank      uint32 // rank of the voter in the view before the change
	Signature []byte // signature of ballotText
}

// ballotText returns the text that an acceptance signs. The view's hash covers the whole lineage.
// The ballot is part of the text because acceptances of different ballots must not be counted
// together.
func ballotText(b Ballot, after Hash) []byte {
	text := binary.AppendUvarint([]byte("elrun accepted view\n"), b.Round)
	return append(binary.AppendUvarint(text, uint64(b.Rank)), after[:]...)
}

// verifier verifies certificates by the rules of a group. It holds no state.
type verifier struct {
	keys   Keys // nil proves nothing
	forces bool // two views may follow one view in the group (I10)
}

// proved reports whether a decision leads from before to after with a valid certificate. At least
// half of the voters must have signed. No smaller number decides, as at most half of the voters may
// be certainly dead (I10). If views can be forced in the group, one signature is enough for a
// forced change, as any member may be the only survivor.
func (v verifier) proved(before, after View, d Decision) bool {
	electors, needed := before.Voters, (before.Voters+1)/2
	if d.Change.Forced && v.forces {
		electors, needed = len(before.Members), 1
	}
	if v.keys == nil || len(d.Proof.Votes) < needed {
		return false
	}
	text := ballotText(d.Proof.Ballot, after.hash)
	var signers []uint32
	for _, vote := range d.Proof.Votes[:needed] {
		// The first wrong signature ends the loop, so a forger costs one verification.
		if int(vote.Rank) >= electors || slices.Contains(signers, vote.Rank) ||
			!v.keys.Verify(before.Members[vote.Rank].ID, text, vote.Signature) {
			return false
		}
		signers = append(signers, vote.Rank)
	}
	return true
}

// provedPart returns the prefix of the decisions after the view from whose certificates are valid, and the view
// to which it leads.
func (v verifier) provedPart(from View, all []Decision) ([]Decision, View) {
	for i, d := range all {
		after, err := from.Apply(d.Change)
		if err != nil || !v.proved(from, after, d) {
			return all[:i], from
		}
		from = after
	}
	return all, from
}
