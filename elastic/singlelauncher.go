package elastic

import (
	"slices"

	"github.com/elrun/elrun/elastic/member"
)

// If one launcher has started every peer that was ever admitted, it knows of every death. While
// this holds the survivors may go on without a majority, in a forced view. It ends when a peer of
// another launcher is admitted, and before that every member must have noted the end (invariant I10
// of elastic/member).

// singleLauncher records whether one launcher has started all members, as far as this member knows.
type singleLauncher struct {
	on      bool // one launcher has started all members
	over    bool // it has not, and never will again
	settled bool // all members know that it is over
}

// end records, for good, that there are peers of several launchers.
func (s *singleLauncher) end(d *driver) {
	s.on, s.over = false, true
	d.step(member.Sole{On: false})
}

// heard checks whether this peer, a newcomer, may rely on the fact that its launcher is the only
// one. For that all other members must have confirmed the fact in heartbeats after this peer became
// a member. From then on they also wait for this peer's acknowledgement before the fact ceases to
// hold.
func (s *singleLauncher) heard(d *driver) {
	if s.on || s.over || !d.cfg.Sole || d.view.Rank(d.ep.Self.ID) < 0 {
		return
	}
	for _, m := range d.view.Members {
		if m.ID != d.ep.Self.ID && (m.Launcher != d.ep.Self.Launcher || d.peers[m.ID] == nil || !d.peers[m.ID].heartbeat.Sole) {
			return
		}
	}
	s.on = true
	d.step(member.Sole{On: true})
}

// foreignJoin is the pending admission of peers of another launcher: an agreement of all members,
// before the machine admits them, that no launcher knows of all deaths any more.
type foreignJoin struct {
	requests []member.Request // of the peers that wait for it
	noted    map[ID]bool      // members that have acknowledged
}

// asked handles a newcomer's request to join, which the machine has received. It admits the
// newcomer if it was approved. A newcomer of another launcher also has to wait until all members
// have acknowledged.
func (d *driver) asked(r member.Request) {
	id := ID(r.Member.ID)
	if !d.isApproved(id) {
		return // it was not approved, or too long ago; it will ask again
	}
	e := d.approved[id].entry
	r.Member.By, r.Member.Was = member.ID(e.By), member.ID(e.Was)
	if fromMember(r.Member).Launcher == d.ep.Self.Launcher || d.launcher.settled {
		d.step(member.Admit{Request: r})
		return
	}
	if d.joining == nil {
		d.joining = &foreignJoin{noted: make(map[ID]bool)}
		d.launcher.end(d)
	}
	f := d.joining
	if !slices.ContainsFunc(f.requests, func(o member.Request) bool { return o.Member.ID == r.Member.ID }) {
		f.requests = append(f.requests, r)
	}
	f.again(d)
}

// again repeats the announcement to members that have not acknowledged, and admits the peers if all
// have. A nil receiver has nothing to do.
func (f *foreignJoin) again(d *driver) {
	if f == nil {
		return
	}
	for _, m := range d.view.Members {
		if m.ID != d.ep.Self.ID && !f.noted[m.ID] {
			d.out.send(m.ID, []byte{byte(controlForeignJoin)})
		}
	}
	f.goOn(d)
}

// goOn admits the peers if all members have acknowledged.
func (f *foreignJoin) goOn(d *driver) {
	missing := func(m Member) bool { return m.ID != d.ep.Self.ID && !f.noted[m.ID] }
	if len(f.noted) < len(d.view.Members)-1 || slices.ContainsFunc(d.view.Members, missing) {
		return
	}
	d.joining = nil
	d.launcher.settled = true
	for _, r := range f.requests {
		d.step(member.Admit{Request: r})
	}
}

// acknowledged records the acknowledgement of a member.
func (f *foreignJoin) acknowledged(d *driver, id ID) {
	if f != nil && !f.noted[id] {
		f.noted[id] = true
		f.goOn(d)
	}
}
