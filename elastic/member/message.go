package member

import "fmt"

// Kind is the kind of a message.
type Kind uint8

// The kinds of messages. The values are part of the encoding.
const (
	// Status reports the sender's view. It acknowledges a Chain.
	Status Kind = iota + 1
	// Ask requests the changes after the sender's view (I9). From a newcomer, which has no view, it
	// carries Request.
	Ask
	// Tell carries a member's report to the proposer.
	Tell
	// Prepare opens a ballot (Paxos phase 1a).
	Prepare
	// Promise answers a Prepare with the change accepted before, if any, and a report (1b).
	Promise
	// Reject answers a Prepare or an Accept whose ballot is below Seen, the promised ballot.
	Reject
	// Accept asks to accept Change (2a).
	Accept
	// Accepted confirms the acceptance, with a signature (2b).
	Accepted
	// Chain carries decided changes that follow the view After, or Base. If the Chain contradicts
	// the receiver's history, sender and receiver are in different branches, and Key decides which
	// branch goes on.
	Chain
	// Fence refuses a newcomer: its ID has been a member, or its request is too old.
	Fence
	// Branch carries a message to a subset of the members of a view, see Spread.
	Branch
	// Gather carries the answers of the subset back.
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

// Ballot numbers the attempts of all proposers at the change of one view. The zero Ballot is lower
// than all ballots in use.
type Ballot struct {
	Round uint64 // from 1
	Rank  uint32 // rank of the proposer in the view, so that no two proposers share a ballot
}

// Less reports whether b is lower than o.
func (b Ballot) Less(o Ballot) bool {
	return b.Round < o.Round || b.Round == o.Round && b.Rank < o.Rank
}

// String returns round and rank.
func (b Ballot) String() string { return fmt.Sprintf("%d.%d", b.Round, b.Rank) }

// Request is a peer's request to join.
type Request struct {
	Member Member
	// At is the first epoch that a member has sent to the peer. The peer was in no view of an
	// earlier epoch, so the changes since At show whether its ID is fresh.
	At uint64
}

// Report is a member's knowledge and requests, for the proposer.
type Report struct {
	Seq uint64 // increases within a view; 0 if the member has had nothing to report in the view
	// Unreachable are the members that the author of the report cannot reach, in rank order.
	Unreachable []ID
	Dead        []ID      // members whose death is certain (I10), in rank order
	Leaving     bool      // the member asks to leave
	Renew       bool      // the session of this view broke
	Joins       []Request // requests that the member has admitted
	Grants      []Grant   // to be issued
	Revoke      []ID      // keys of grants to be revoked
	Kick        []ID      // IDs to be put out and barred
}

// empty reports whether no change follows from the report.
func (r Report) empty() bool {
	return len(r.Unreachable) == 0 && len(r.Dead) == 0 && !r.Leaving && !r.Renew &&
		len(r.Joins)+len(r.Grants)+len(r.Revoke)+len(r.Kick) == 0
}

// Message is a message between machines. Kind determines which fields are set. Receivers share the
// data that it points to and must not change it.
type Message struct {
	From, To ID // not encoded: the network knows them

	Kind  Kind
	Epoch uint64 // epoch of the sender's view
	View  Hash   // the sender's view; zero for a newcomer

	Ballot  Ballot     // Prepare, Promise, Reject, Accept, Accepted
	Seen    Ballot     // Promise: the ballot of Change; Reject: the promised ballot
	Change  *Change    // Promise: the change accepted before, or nil; Accept: the proposed change
	Report  *Report    // Tell, Promise
	After   Hash       // Chain without Base: the view that the first change follows
	Base    *View      // Chain: the whole view that the first change follows, or nil
	Changes []Decision // Chain: decided changes, in order
	Request *Request   // Ask
	Key     Key        // Chain with Base

	Signature []byte // Accepted: see Certificate

	Spread *Spread // Branch, Gather
}
