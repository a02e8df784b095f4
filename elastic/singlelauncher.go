package elastic

import (
	"slices"

	"github.com/elrun/elrun/elastic/member"
)

// If one launcher has started every peer that was ever admitted, that launcher observes every
// death. While this is so, the survivors may go on without a majority, in a forced view. The
// condition ends when a peer of another launcher is admitted; before that, every member must have
// acknowledged the end (invariant I10 of elastic/member).

// singleLauncher records whether one launcher has started all members, as far as this member knows,
// and delays the admission of peers of another launcher until all members have acknowledged it. The
// driver's goroutine owns it.
type singleLauncher struct {
	asserted bool         // this peer's launcher has started all peers as far as it knows, see Config.Sole
	on       bool         // one launcher has started all members
	over     bool         // a peer of another launcher has asked to join, so on stays false
	settled  bool         // all members know that over is set
	joining  *foreignJoin // the pending admission of peers of another launcher, or nil

	step     func(member.Event) // passes an event to the membership machine
	announce func(ID)           // announces to a member that a peer of another launcher will be admitted
}

// newSingleLauncher returns a singleLauncher with on false; begin or confirm sets it.
func newSingleLauncher(asserted bool, step func(member.Event), out *sendQueues) singleLauncher {
	return singleLauncher{asserted: asserted, step: step,
		announce: func(id ID) { out.send(id, []byte{byte(controlForeignJoin)}) }}
}

// end records permanently that the job has peers of several launchers.
func (s *singleLauncher) end() {
	s.on, s.over = false, true
	s.step(member.Sole{On: false})
}

// confirm sets on at a peer that has joined, once all other members have reported in heartbeats
// that one launcher has started all members (heartbeat.Sole). Those members already count this peer
// as a member, so before they admit a peer of another launcher they wait for this peer's
// acknowledgement.
func (s *singleLauncher) confirm(r *roster) {
	if s.on || s.over || !s.asserted || r.view.Rank(r.self.ID) < 0 {
		return
	}
	for _, m := range r.view.Members {
		if m.ID != r.self.ID && (m.Launcher != r.self.Launcher || r.peers[m.ID] == nil || !r.peers[m.ID].heartbeat.Sole) {
			return
		}
	}
	s.on = true
	s.step(member.Sole{On: true})
}

// foreignJoin is the pending admission of peers of another launcher. Before the machine admits
// them, all members acknowledge that no single launcher observes all deaths any more.
type foreignJoin struct {
	requests []member.Request // requests of the peers that wait for the agreement
	noted    map[ID]bool      // members that have acknowledged
}

// admit lets the machine admit a newcomer. It does so at once if this member's launcher has started
// the newcomer, or if all members have already acknowledged that there are several launchers.
// Otherwise all members have to acknowledge first.
func (s *singleLauncher) admit(r *roster, request member.Request) {
	if fromMember(request.Member).Launcher == r.self.Launcher || s.settled {
		s.step(member.Admit{Request: request})
		return
	}
	if s.joining == nil {
		s.joining = &foreignJoin{noted: make(map[ID]bool)}
		s.end()
	}
	f := s.joining
	if !slices.ContainsFunc(f.requests, func(o member.Request) bool { return o.Member.ID == request.Member.ID }) {
		f.requests = append(f.requests, request)
	}
	s.again(r)
}

// again repeats the announcement to members that have not acknowledged it, and admits the peers if
// all members have. Announcements and acknowledgements may be lost, so the driver calls again at
// every heartbeat.
func (s *singleLauncher) again(r *roster) {
	if s.joining == nil {
		return
	}
	if s.settled { // another member has admitted a peer of another launcher
		s.admitAll()
		return
	}
	for _, m := range r.view.Members {
		if m.ID != r.self.ID && !s.joining.noted[m.ID] {
			s.announce(m.ID)
		}
	}
	s.admitIfNoted(r)
}

// admitIfNoted admits the peers if all members have acknowledged.
func (s *singleLauncher) admitIfNoted(r *roster) {
	f := s.joining
	missing := func(m Member) bool { return m.ID != r.self.ID && !f.noted[m.ID] }
	if len(f.noted) < len(r.view.Members)-1 || slices.ContainsFunc(r.view.Members, missing) {
		return
	}
	s.settled = true
	s.admitAll()
}

// admitAll admits the peers.
func (s *singleLauncher) admitAll() {
	requests := s.joining.requests
	s.joining = nil
	for _, request := range requests {
		s.step(member.Admit{Request: request})
	}
}

// acknowledged records the acknowledgement of a member.
func (s *singleLauncher) acknowledged(r *roster, id ID) {
	if s.joining != nil && !s.joining.noted[id] {
		s.joining.noted[id] = true
		s.admitIfNoted(r)
	}
}
