package member

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// ID names one process start. It is never used again by another process (I2).
type ID string

// Hash identifies a view and, through its parents, its whole lineage.
type Hash [sha256.Size]byte

// The limits of what a view and a message may hold.
const (
	MaxMembers = 16384 // members of a view
	MaxID      = 128   // bytes of an ID
	MaxInfo    = 512   // bytes of a member's Info
	// MaxView is how long a view may be, encoded: a newcomer gets it in one message.
	MaxView = MaxMessage - 64<<10
)

// ErrChange: a change that cannot follow the view it was applied to.
var ErrChange = errors.New("change does not fit the view")

// Member is one peer of a view.
type Member struct {
	ID   ID
	Info string // carried for the caller, addresses for example; never read here
	By   ID     // key of the Grant that let it in; "" if none did
	Was  ID     // its ID before, if it comes back; it uses up no grant then
}

// View is the membership of one epoch. It is immutable. The first Voters members
// decide the next view; those behind them joined with this view (I11).
type View struct {
	Epoch   uint64
	Parent  Hash     // of the view before; zero for the first
	Members []Member // in rank order
	Voters  int
	Reason  Reason
	Founder ID // the lowest ID of the first forced view of the lineage; "" if none was forced

	Grants []Grant // who may join, the oldest first
	Barred []ID    // were kicked, and are never let in again

	hash   Hash
	size   int     // encoded
	lookup *lookup // nil for few members
	views  *Views  // where the next ones are kept, or nil
}

// Change leads from a view to the next. It is what voters agree on.
type Change struct {
	Lost   []ID     // members that are gone, in rank order
	Left   []ID     // members that asked to leave, in rank order
	Join   []Member // new members, in the order in which they get ranks
	Forced bool     // decided by fewer than a quorum (I10)
	Renew  bool     // a new view though nobody comes or goes
	Kick   []ID     // are put out and barred, members or not
	Grants []Grant  // new ones
	Revoke []ID     // keys of grants that let in nobody from now on
}

// Reason says why a view followed the one before.
type Reason uint8

// The reasons. A change that has several is named by the first that applies of
// ForForced, ForKick, ForLost, ForLeave, ForJoin, ForRenew, ForGrant, ForVote.
const (
	ForStart  Reason = iota // the first view
	ForJoin                 // members joined
	ForLeave                // members left
	ForLost                 // members were lost
	ForForced               // without a quorum
	ForVote                 // nobody came or went; members that had no vote got one
	ForRenew                // nobody came or went; the session before ended with an error
	ForKick                 // members were put out on request
	ForGrant                // nobody came or went; grants were made or revoked
)

// String returns the word of the event log.
func (r Reason) String() string {
	names := [...]string{"start", "join", "leave", "lost", "forced", "vote", "renew", "kick", "grant"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// First makes the view of epoch 1, in which all members vote and the grants hold. Its error says which
// member cannot stand there.
func First(members []Member, grants ...Grant) (View, error) {
	v := View{Epoch: 1, Members: slices.Clone(members), Voters: len(members), Reason: ForStart, lookup: newLookup(members)}
	err := v.check()
	if err == nil {
		v.Grants, _, err = v.ledger(Change{Grants: grants})
	}
	if err != nil {
		return View{}, err
	}
	return v.sealed()
}

// Hash returns the view's lineage. It covers everything in the view and in those
// before it, as each view is hashed together with its parent's hash.
func (v View) Hash() Hash { return v.hash }

// Rank returns the index of id, or -1.
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

// String shows the epoch, the voters, and behind a bar those without a vote.
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

// Apply makes the view that follows v by c. Survivors keep their order and all have
// a vote; joiners stand behind them without one (I3, I11). It is the only way by
// which a view comes about, so all that agree on v and c agree on the next view.
func (v View) Apply(c Change) (View, error) { return v.views.make(v, c) }

// apply is Apply where the view is not there yet.
func (v View) apply(c Change) (View, error) {
	next, err := v.follow(c)
	if err != nil {
		return View{}, err
	}
	return next.sealed()
}

// sealed returns v with its hash, unless it is too long.
func (v View) sealed() (View, error) {
	v.hash, v.size = v.contentHash()
	if v.size > MaxView {
		return View{}, fmt.Errorf("member: epoch %d: %d members have %d bytes, at most %d: %w", v.Epoch, len(v.Members), v.size, MaxView, ErrChange)
	}
	return v, nil
}

// follow makes the view that follows v by c, but for its hash.
func (v View) follow(c Change) (View, error) {
	next := View{Epoch: nextEpoch(v.Epoch, c), Parent: v.hash, Reason: c.reason(), Founder: v.Founder, views: v.views}
	kept, err := v.without(c)
	if err != nil {
		return View{}, err
	}
	if next.Grants, next.Barred, err = v.ledger(c); err != nil {
		return View{}, err
	}
	if c.reason() == ForVote && v.Voters == len(v.Members) {
		return View{}, fmt.Errorf("member: apply to %v: changes nothing: %w", v, ErrChange)
	}
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

// without returns the members of v that c keeps.
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
	if gone != len(c.Lost)+len(c.Left) {
		return nil, fmt.Errorf("member: apply to %v: removes a stranger, or a member twice: %w", v, ErrChange)
	}
	return kept, nil
}

// check refuses what no change may lead to: a view without voters, too many
// members, or an ID that is empty, too long or there twice.
func (v View) check() error {
	if v.Voters < 1 || len(v.Members) > MaxMembers {
		return fmt.Errorf("member: epoch %d: %d members, %d voters: %w", v.Epoch, len(v.Members), v.Voters, ErrChange)
	}
	// The voters of a later view were checked when they joined.
	first := v.Voters
	if v.Epoch == 1 {
		first = 0
	}
	for i := first; i < len(v.Members); i++ {
		m := v.Members[i]
		if m.ID == "" || len(m.ID) > MaxID || len(m.By) > MaxKey || len(m.Was) > MaxKey || len(m.Info) > MaxInfo || v.Rank(m.ID) != i {
			return fmt.Errorf("member: epoch %d: rank %d, ID %q, %d bytes of info: %w", v.Epoch, i, m.ID, len(m.Info), ErrChange)
		}
	}
	return nil
}

// reason names a change.
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

// String lists who is kicked (x), goes (-), leaves (<) and comes (+), and what is granted and
// revoked.
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

// lowest returns the lowest ID.
func lowest(members []Member) ID {
	low := members[0].ID
	for _, m := range members {
		low = min(low, m.ID)
	}
	return low
}

// contentHash returns the hash of all that is in a view, the parent's hash among it. A
// receiver makes it anew, so nobody gives a view the hash of another.
func (v View) contentHash() (hash Hash, size int) {
	text := appendView([]byte(hashed), v)
	return sha256.Sum256(text), len(text) - len(hashed)
}

const hashed = "elrun view "
