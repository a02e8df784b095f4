package elastic

import (
	"slices"

	"github.com/elrun/elrun/elastic/member"
)

// A launcher that started every peer ever admitted knows of every death. This holds
// until a peer of another launcher is let in, and before that every member must have
// noted that it ends (invariant I10 of elastic/member).

// soleness says whether one launcher has started everybody, as far as is known here.
type soleness struct {
	on      bool // it has
	over    bool // it never will have again
	settled bool // all members know that it is over
}

// end notes that there are peers of several launchers, for good.
func (s *soleness) end(k *keeper) {
	s.on, s.over = false, true
	k.step(member.Sole{On: false})
}

// heard looks whether a late peer of the one launcher may count on it: all others
// must have said so since it is a member, which is when they ask it before it ends.
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

// foreign is what a member does before it admits a peer of another launcher.
type foreign struct {
	requests []member.Request
	noted    map[ID]bool // members that acknowledged
}

// asked lets in a peer that was approved, when all know that it comes.
func (k *keeper) asked(r member.Request) {
	id := ID(r.Member.ID)
	if !k.isApproved(id) {
		return // it will ask again
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

// again tells those who have not acknowledged, and goes on if there is none. A nil
// receiver has nothing to do.
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

// goOn lets the peers in if all have acknowledged.
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

// acknowledged notes that a member knows.
func (f *foreign) acknowledged(k *keeper, id ID) {
	if f != nil && !f.noted[id] {
		f.noted[id] = true
		f.goOn(k)
	}
}
