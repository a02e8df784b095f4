package elastic

import (
	"slices"

	"github.com/elrun/elrun/elastic/member"
)

// If one launcher has started every peer that was ever admitted, it knows of every death. While
// this holds the survivors may go on without a majority, in a forced view. It ends when a peer of
// another launcher is admitted, and before that every member must have noted the end (invariant I10
// of elastic/member).

// soleness records whether one launcher has started all members, as far as this member knows.
type soleness struct {
	on      bool // one launcher has started all members
	over    bool // it has not, and never will again
	settled bool // all members know that it is over
}

// end records, for good, that there are peers of several launchers.
func (s *soleness) end(k *keeper) {
	s.on, s.over = false, true
	k.step(member.Sole{On: false})
}

// heard checks whether this peer, a newcomer, may rely on the fact that its launcher is the only
// one. For that all other members must have confirmed the fact in heartbeats after this peer became
// a member. From then on they also wait for this peer's acknowledgement before the fact ceases to
// hold.
func (s *soleness) heard(k *keeper) {
	if s.on || s.over || !k.cfg.Sole || k.view.Rank(k.ep.Self.ID) < 0 {
		return
	}
	for _, m := range k.view.Members {
		if m.ID != k.ep.Self.ID && (m.Launcher != k.ep.Self.Launcher || k.peers[m.ID] == nil || !k.peers[m.ID].beat.Sole) {
			return
		}
	}
	s.on = true
	k.step(member.Sole{On: true})
}

// foreign is the pending admission of peers of another launcher: an agreement of all members,
// before the machine admits them, that no launcher knows of all deaths any more.
type foreign struct {
	requests []member.Request // of the peers that wait for it
	noted    map[ID]bool      // members that have acknowledged
}

// asked handles a newcomer's request to join, which the machine has received. It admits the
// newcomer if it was approved. A newcomer of another launcher also has to wait until all members
// have acknowledged.
func (k *keeper) asked(r member.Request) {
	id := ID(r.Member.ID)
	if !k.isApproved(id) {
		return // it was not approved, or too long ago; it will ask again
	}
	e := k.approved[id].entry
	r.Member.By, r.Member.Was = member.ID(e.By), member.ID(e.Was)
	if fromMember(r.Member).Launcher == k.ep.Self.Launcher || k.sole.settled {
		k.step(member.Admit{Request: r})
		return
	}
	if k.foreign == nil {
		k.foreign = &foreign{noted: make(map[ID]bool)}
		k.sole.end(k)
	}
	f := k.foreign
	if !slices.ContainsFunc(f.requests, func(o member.Request) bool { return o.Member.ID == r.Member.ID }) {
		f.requests = append(f.requests, r)
	}
	f.again(k)
}

// again repeats the announcement to members that have not acknowledged, and admits the peers if all
// have. A nil receiver has nothing to do.
func (f *foreign) again(k *keeper) {
	if f == nil {
		return
	}
	for _, m := range k.view.Members {
		if m.ID != k.ep.Self.ID && !f.noted[m.ID] {
			k.out.send(m.ID, []byte{byte(letterForeign)})
		}
	}
	f.goOn(k)
}

// goOn admits the peers if all members have acknowledged.
func (f *foreign) goOn(k *keeper) {
	missing := func(m Member) bool { return m.ID != k.ep.Self.ID && !f.noted[m.ID] }
	if len(f.noted) < len(k.view.Members)-1 || slices.ContainsFunc(k.view.Members, missing) {
		return
	}
	k.foreign = nil
	k.sole.settled = true
	for _, r := range f.requests {
		k.step(member.Admit{Request: r})
	}
}

// acknowledged records the acknowledgement of a member.
func (f *foreign) acknowledged(k *keeper, id ID) {
	if f != nil && !f.noted[id] {
		f.noted[id] = true
		f.goOn(k)
	}
}
