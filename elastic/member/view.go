package member

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// ID is the identity of one process start. No other process ever uses the same ID (I2).
type ID string

// Hash identifies a view and, through its parents, its whole lineage.
type Hash [sha256.Size]byte

// The limits of views and messages.
const (
	MaxMembers = 16384 // members of a view
	MaxID      = 128   // bytes of an ID
	MaxInfo    = 512   // bytes of a member's Info
	// MaxView is the longest encoded view, in bytes: a newcomer gets it in one message.
	MaxView = MaxMessage - 64<<10
)

// ErrChange means that a change does not fit the view to which it was applied.
var ErrChange = errors.New("change does not fit the view")

// Member is one peer of a view.
type Member struct {
	ID   ID
	Info string // carried for the caller, addresses for example; never read here
	// By is the key of the Grant that admitted the member; "" if no grant did.
	By ID
	// Was is the former ID of a member that has come back. The grant counts no further use for it.
	Was ID
}

// View is the membership of one epoch. It is immutable. The first Voters members decide the next
// view; the members behind them joined with this view (I11).
type View struct {
	Epoch   uint64
	Parent  Hash     // Hash of the view before; zero for the first view
	Members []Member // in rank order
	Voters  int
	Reason  Reason
	Founder ID // lowest ID of the first forced view of the lineage; "" if none was forced

	Grants []Grant // the grants by which peers join, the oldest first
	Barred []ID    // IDs that were kicked, and are never admitted again

	// Left has the members that the last change removed at their own request. It is not a part of
	// the hash or of the encoded view.
	Left []ID

	hash Hash
	// size is the length of the encoded view, in bytes.
	size   int
	lookup *lookup // ranks by ID; nil for few members
	views  *Views  // cache of the views that follow, or nil
}

// Change leads from a view to the next. It is the value on which voters agree.
type Change struct {
	Lost   []ID     // members that are gone, in rank order
	Left   []ID     // members that asked to leave, in rank order
	Join   []Member // new members, in the order of their ranks
	Forced bool     // decided without a quorum (I10)
	Renew  bool     // a new view although the membership may stay the same
	Kick   []ID     // IDs to be put out and barred, members or not
	Grants []Grant  // new grants
	Revoke []ID     // keys of grants that admit no further peers
}

// Reason is the reason why a view followed the one before.
type Reason uint8

// The reasons. If several reasons apply to a change, the first in this order counts: ForForced,
// ForKick, ForLost, ForLeave, ForJoin, ForRenew, ForGrant, ForVote.
const (
	ForStart  Reason = iota // the first view
	ForJoin                 // members joined
	ForLeave                // members left
	ForLost                 // members were lost
	ForForced               // without a quorum
	ForVote                 // same members; the members without a vote got a vote
	ForRenew                // same members; the session before ended with an error
	ForKick                 // members were put out on request
	ForGrant                // same members; grants were issued or revoked
)

// String returns the reason as one word, as in the event log.
func (r Reason) String() string {
	names := [...]string{"start", "join", "leave", "lost", "forced", "vote", "renew", "kick", "grant"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// First returns the view of epoch 1, in which all members vote and the grants are valid. An error
// names a member or a grant that is invalid.
func First(members []Member, grants ...Grant) (View, error) {
	v := View{Epoch: 1, Members: slices.Clone(members), Voters: len(members), Reason: ForStart, lookup: newLookup(members)}
	err := v.check()
	if err == nil {
		v.Grants, _, err = v.applyGrants(Change{Grants: grants})
	}
	if err != nil {
		return View{}, err
	}
	return v.sealed()
}

// Hash returns the view's lineage. It covers the content of the view and of all views before it, as
// each view is hashed together with its parent's hash.
func (v View) Hash() Hash { return v.hash }

// Rank returns the rank of the member id, or -1.
func (v View) Rank(id ID) int {
	if v.lookup != nil {
		if rank, ok := v.lookup.ranks[id]; ok {
			return int(rank)
		}
		return -1
	}
	return slices.IndexFunc(v.Members, func(m Member) bool { return m.ID == id })
}

// IDs returns the members' IDs in rank order.
func (v View) IDs() []ID {
	ids := make([]ID, len(v.Members))
	for i, m := range v.Members {
		ids[i] = m.ID
	}
	return ids
}

// String returns the epoch, the voters, and after a bar the members without a vote.
func (v View) String() string {
	s := fmt.Sprintf("epoch %d:", v.Epoch)
	for i, m := range v.Members {
		if i == v.Voters {
			s += " |"
		}
		s += " " + string(m.ID)
	}
	return s
}

// Apply returns the view that follows v by c. Survivors keep their order and all have a vote; new
// members follow them in rank order, without a vote (I3, I11). All views after the first are made
// by Apply, so members that agree on v and c agree on the next view. An error wraps ErrChange.
func (v View) Apply(c Change) (View, error) { return v.views.make(v, c) }

// apply is Apply without the cache.
func (v View) apply(c Change) (View, error) {
	next, err := v.follow(c)
	if err != nil {
		return View{}, err
	}
	return next.sealed()
}

// sealed returns v with its hash, or an error if it is longer than MaxView.
func (v View) sealed() (View, error) {
	v.hash, v.size = v.contentHash()
	if v.size > MaxView {
		return View{}, fmt.Errorf("member: epoch %d: %d members have %d bytes, at most %d: %w", v.Epoch, len(v.Members), v.size, MaxView, ErrChange)
	}
	return v, nil
}

// follow returns the view that follows v by c, without its hash.
func (v View) follow(c Change) (View, error) {
	next := View{Epoch: nextEpoch(v.Epoch, c), Parent: v.hash, Reason: c.reason(), Founder: v.Founder, Left: c.Left, views: v.views}
	kept, err := v.without(c)
	if err != nil {
		return View{}, err
	}
	if next.Grants, next.Barred, err = v.applyGrants(c); err != nil {
		return View{}, err
	}
	// A change without any content gives all members a vote. If they all have a vote already, it is
	// refused.
	if c.reason() == ForVote && v.Voters == len(v.Members) {
		return View{}, fmt.Errorf("member: apply to %v: changes nothing: %w", v, ErrChange)
	}
	// Newcomers follow the voters in rank order. They get their vote with the next change.
	next.Voters = len(kept)
	next.Members = append(kept, c.Join...)
	next.lookup = newLookup(next.Members)
	if c.Forced && v.Founder == "" && len(kept) > 0 {
		next.Founder = lowest(kept)
	}
	if err := next.check(); err != nil {
		return View{}, err
	}
	return next, nil
}

// without returns the members of v that c keeps, in their order (I3). A change in whose Lost or
// Left is a peer that is not a member is refused: it was made for another view.
func (v View) without(c Change) ([]Member, error) {
	gone := 0
	kept := make([]Member, 0, len(v.Members)+len(c.Join))
	for _, m := range v.Members {
		if slices.Contains(c.Lost, m.ID) || slices.Contains(c.Left, m.ID) {
			gone++
			continue
		}
		if slices.Contains(c.Kick, m.ID) {
			continue
		}
		kept = append(kept, m)
	}
	// The numbers differ if a peer is not a member, or if a member is named twice.
	if gone != len(c.Lost)+len(c.Left) {
		return nil, fmt.Errorf("member: apply to %v: the change removes a peer that is no member, or a member twice: %w", v, ErrChange)
	}
	return kept, nil
}

// check enforces the conditions on which all code of this package relies, whichever member made the
// change. It returns an error for a view to which no change may lead: without voters, with too many
// members, or with an ID that is empty, too long or not unique.
func (v View) check() error {
	if v.Voters < 1 || len(v.Members) > MaxMembers {
		return fmt.Errorf("member: epoch %d: the view has %d members and %d voters, one of which is out of range: %w", v.Epoch, len(v.Members), v.Voters, ErrChange)
	}
	// The voters of a later view were checked when they joined.
	first := v.Voters
	if v.Epoch == 1 {
		first = 0
	}
	for i := first; i < len(v.Members); i++ {
		m := v.Members[i]
		if m.ID == "" || len(m.ID) > MaxID || len(m.By) > MaxKey || len(m.Was) > MaxKey || len(m.Info) > MaxInfo || v.Rank(m.ID) != i {
			return fmt.Errorf("member: epoch %d: the member at rank %d, ID %q with %d bytes of info, has a field that is empty, too long or not unique: %w", v.Epoch, i, m.ID, len(m.Info), ErrChange)
		}
	}
	return nil
}

// reason returns the reason of a change. If several apply, it returns the first in the order that
// the comment of the constants gives.
func (c Change) reason() Reason {
	switch {
	case c.Forced:
		return ForForced
	case len(c.Kick) > 0:
		return ForKick
	case len(c.Lost) > 0:
		return ForLost
	case len(c.Left) > 0:
		return ForLeave
	case len(c.Join) > 0:
		return ForJoin
	case c.Renew:
		return ForRenew
	case len(c.Grants)+len(c.Revoke) > 0:
		return ForGrant
	}
	return ForVote
}

// String lists the IDs that are kicked (x), lost (-), leaving (<) and joining (+), and the grants
// and revocations.
func (c Change) String() string {
	s := c.reason().String()
	for _, id := range c.Kick {
		s += " x" + string(id)
	}
	for _, id := range c.Lost {
		s += " -" + string(id)
	}
	for _, id := range c.Left {
		s += " <" + string(id)
	}
	for _, m := range c.Join {
		s += " +" + string(m.ID)
	}
	for _, g := range c.Grants {
		s += " grant " + string(g.Key)
	}
	for _, id := range c.Revoke {
		s += " revoke " + string(id)
	}
	return s
}

// lowest returns the lowest ID of the members.
func lowest(members []Member) ID {
	low := members[0].ID
	for _, m := range members {
		low = min(low, m.ID)
	}
	return low
}

// contentHash returns the hash of the encoded view, which includes the parent's hash, and the
// length of the encoding in bytes. A receiver computes it anew, so no sender can give a view a
// false hash.
func (v View) contentHash() (hash Hash, size int) {
	text := appendView([]byte(hashed), v)
	return sha256.Sum256(text), len(text) - len(hashed)
}

// hashed is the prefix of the hashed text, which separates it from other hashes.
const hashed = "elrun view "

// nextEpoch returns the epoch of the view to which c leads.
func nextEpoch(epoch uint64, c Change) uint64 {
	if c.Forced {
		// The missing members may have decided epoch+1 without this part of the group.
		return epoch + 2
	}
	return epoch + 1
}
