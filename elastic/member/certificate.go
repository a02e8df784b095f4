package member

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Keys signs with the key of one process and verifies signatures of all: an ID must be
// enough to tell its public key. Signing and verifying is deterministic and has no effects.
type Keys interface {
	// Sign returns the signature of text by this process, at most MaxSignature bytes.
	Sign(text []byte) []byte
	// Verify reports whether the process of an ID has signed text.
	Verify(id ID, text, signature []byte) bool
}

// MaxSignature is the longest signature in bytes. Those of ed25519 have 64.
const MaxSignature = 128

// Decision is a change and the proof that it was decided.
type Decision struct {
	Change Change
	Proof  Certificate
}

// String shows the change and the ranks of those whose signatures are there.
func (d Decision) String() string {
	s := d.Change.String() + " by"
	for _, v := range d.Proof.Votes {
		s += fmt.Sprintf(" %d", v.Rank)
	}
	return s
}

// Certificate holds acceptances of one ballot, signed by those who gave them: enough to
// decide the change. Whoever knows the view before can check it, whoever brings it.
type Certificate struct {
	Ballot Ballot
	Votes  []Vote // at most one per rank
}

// Vote is one acceptance.
type Vote struct {
	Rank      uint32 // in the view before
	Signature []byte // of ballotText
}

// ballotText is what an acceptance signs. The view's hash covers all that came before it.
// The ballot is there as acceptances of different ballots decide nothing together.
func ballotText(b Ballot, after Hash) []byte {
	text := binary.AppendUvarint([]byte("elrun accepted view\n"), b.Round)
	return append(binary.AppendUvarint(text, uint64(b.Rank)), after[:]...)
}

// sign returns this member's signature under an acceptance; nil without keys.
func (m *Machine) sign(b Ballot, after Hash) []byte {
	if m.cfg.Keys == nil {
		return nil
	}
	return m.cfg.Keys.Sign(ballotText(b, after))
}

// certificate gathers the acceptances of the present ballot, no more than a majority.
func (m *Machine) certificate() Certificate {
	p := &m.proposer
	c := Certificate{Ballot: p.ballot}
	for rank, signature := range p.signatures {
		if len(signature) > 0 && len(c.Votes) < m.electorate().needed() {
			c.Votes = append(c.Votes, Vote{uint32(rank), signature})
		}
	}
	return c
}

// proved reports whether a decision leads from one view to another: half of the voters
// have signed, which is the least that decides (I10: an even number may have lost half to
// certain deaths). One is enough for a forced change where this member's group forces
// changes itself: anybody may be the only survivor.
func (m *Machine) proved(before, after View, d Decision) bool {
	electors, needed := before.Voters, (before.Voters+1)/2
	if d.Change.Forced && m.forces() {
		electors, needed = len(before.Members), 1
	}
	if m.cfg.Keys == nil || len(d.Proof.Votes) < needed {
		return false
	}
	text := ballotText(d.Proof.Ballot, after.hash)
	var signers []uint32
	for _, v := range d.Proof.Votes[:needed] {
		// The first that is wrong ends the work: a forger costs one verification.
		if int(v.Rank) >= electors || slices.Contains(signers, v.Rank) ||
			!m.cfg.Keys.Verify(before.Members[v.Rank].ID, text, v.Signature) {
			return false
		}
		signers = append(signers, v.Rank)
	}
	return true
}

// forces reports whether two views may follow one in this group (I10).
func (m *Machine) forces() bool { return m.cfg.Any || m.own.sole }

// provedPart returns the decisions after a view that are proved, up to the first that is
// not, and the view to which they lead.
func (m *Machine) provedPart(v View, all []Decision) ([]Decision, View) {
	for i, d := range all {
		after, err := v.Apply(d.Change)
		if err != nil || !m.proved(v, after, d) {
			return all[:i], v
		}
		v = after
	}
	return all, v
}
