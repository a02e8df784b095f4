package member

import "fmt"

// Kind tells messages apart.
type Kind uint8

// The kinds of messages. The values are part of the encoding.
const (
	// Status says which view its sender is in. It acknowledges a Chain.
	Status Kind = iota + 1
	// Ask wants to be told what comes after the sender's view (I9). With no view it
	// comes from a peer that wants to join, and carries Request.
	Ask
	// Tell carries what a member knows to the one that is to propose a change.
	Tell
	// Prepare opens a ballot (Paxos 1a).
	Prepare
	// Promise answers it with the change accepted before, if any, and a report (1b).
	Promise
	// Reject answers a Prepare or Accept below Seen, which was promised.
	Reject
	// Accept asks to accept Change (2a).
	Accept
	// Accepted says that it was (2b).
	Accepted
	// Chain carries decided changes that follow the view After, or Base. Where it fits
	// no view of the receiver, the two are of different branches, and Key decides.
	Chain
	// Fence says to a peer that its ID has been a member, or asked too long ago.
	Fence
	// Branch carries a message to the members of a part of a view, see Spread.
	Branch
	// Gather carries back their answers.
	Gather
)

// String returns the name used in traces.
func (k Kind) String() string {
	names := [...]string{"none", "status", "ask", "tell", "prepare", "promise", "reject", "accept", "accepted", "chain", "fence", "branch", "gather"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Ballot numbers a proposer's attempts at the change of one view. The zero Ballot is
// below all that are used.
type Ballot struct {
	Round uint64 // from 1
	Rank  uint32 // of the proposer in the view, so that no two share a ballot
}

// Less reports whether b comes before o.
func (b Ballot) Less(o Ballot) bool {
	return b.Round < o.Round || b.Round == o.Round && b.Rank < o.Rank
}

// String shows round and rank.
func (b Ballot) String() string { return fmt.Sprintf("%d.%d", b.Round, b.Rank) }

// Request is a peer's wish to join.
type Request struct {
	Member Member
	// At is the first epoch that the peer heard of. It had not been a member up to
	// then, so a look at the changes since tells whether its ID is still fresh.
	At uint64
}

// Report is what one member knows and the one that proposes should.
type Report struct {
	Seq         uint64 // a later report of the same member and view has a higher one; 0: nothing to say up to now
	Unreachable []ID   // members that it cannot reach, in rank order
	Dead        []ID   // members whose death is certain (I10), in rank order
	Leaving     bool
	Renew       bool // this view has had its time
	Joins       []Request
	Grants      []Grant // to be made
	Revoke      []ID    // keys of grants
	Kick        []ID
}

// empty reports whether there is nothing to act on.
func (r Report) empty() bool {
	return len(r.Unreachable) == 0 && len(r.Dead) == 0 && !r.Leaving && !r.Renew &&
		len(r.Joins)+len(r.Grants)+len(r.Revoke)+len(r.Kick) == 0
}

// Message is what machines send each other. Which fields are set follows from Kind.
// Receivers share what it points to and must not change it.
type Message struct {
	From, To ID // not encoded: the network knows them

	Kind  Kind
	Epoch uint64 // of the sender's view
	View  Hash   // the sender's view; zero for a peer that joins

	Ballot  Ballot     // Prepare to Accepted
	Seen    Ballot     // Promise: that of Change; Reject: the one promised
	Change  *Change    // Promise: accepted before, or nil; Accept: the proposed
	Report  *Report    // Tell, Promise
	After   Hash       // Chain without Base: the view that the first change follows
	Base    *View      // Chain
	Changes []Decision // Chain
	Request *Request   // Ask
	Key     Key        // Chain with Base

	Signature []byte // Accepted: see Certificate

	Spread *Spread // Branch, Gather
}
