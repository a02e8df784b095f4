package elastic

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/event"
)

// errFirst means that two peers were given different first views.
func errFirst(id ID) error {
	return fmt.Errorf("%s was told another first view than this peer: were they started by different launchers?", id.Short())
}

// entered makes v the present view. It introduces new members to the network before anything is
// sent to them, revokes sessions that cannot go on, and logs the changes.
func (k *keeper) entered(mv member.View) {
	old := k.view
	v := k.cfg.shared.view(mv, old)
	came, left := v.changes(old)
	k.view = v
	// An unreadable address is the member's own mistake; it will show as a member that cannot be
	// reached.
	_ = k.ep.Network.Introduce(came)
	if _, nobody := k.cfg.Sink.(event.Discard); !nobody {
		k.emit(v.Epoch, event.View{Members: short(v.Members), Voters: shortIDs(v.Voters), Reason: v.Reason})
	}
	k.welcome(came, old.Epoch > 0)
	gone := k.farewell(left)
	k.set(func(s *standing) {
		s.phase, s.view = max(s.phase, inside), v
		s.former = slices.Concat(gone, s.former)
		s.former = s.former[:min(len(s.former), maxFormer)]
	})
	switch v.Reason {
	// The members stay, so the session must be replaced even though no member of it is lost.
	case "renew":
		k.revoke(fmt.Errorf("epoch %d follows as the session broke", v.Epoch))
	case "forced", "lost", "kick":
		k.revokeFor(gone)
	}
}

// maxFormer bounds the lost members that are remembered.
const maxFormer = 32

// welcome records new members. A new member counts as just heard.
func (k *keeper) welcome(came []Member, later bool) {
	foreign := func(m Member) bool { return m.Launcher != k.ep.Self.Launcher }
	if k.view.Epoch > 1 && slices.ContainsFunc(k.view.Members, foreign) {
		k.sole.end(k)
		k.sole.settled = true // it was admitted only after all members had acknowledged
	}
	for _, m := range came {
		if m.ID == k.ep.Self.ID {
			continue
		}
		delete(k.approved, m.ID)
		delete(k.applicants, m.ID)
		if len(k.view.Members) <= greetedAll {
			k.peerOf(m.ID)
		}
		if later {
			k.emit(k.view.Epoch, event.Join{Who: m.ID.Short(), Reason: "admitted"})
		}
	}
	watched := k.watched()
	for _, id := range watched {
		k.peerOf(id)
	}
	// In a large group only records that matter are kept, so memory does not grow with the group.
	if len(k.view.Members) > greetedAll {
		maps.DeleteFunc(k.peers, func(id ID, p *peer) bool { return p.unremarkable() && !slices.Contains(watched, id) })
	}
}

// farewell removes the records of the members in gone, and returns the members that were lost or
// kicked.
func (k *keeper) farewell(gone []Member) (lost []Member) {
	v := k.view
	for _, m := range gone {
		p := k.peers[m.ID]
		if p == nil {
			p = &peer{detector: detector{silence: newSilence(time.Now())}} // nothing is known of this member
		}
		delete(k.peers, m.ID)
		if p.beat.Ended {
			k.end()
		}
		if slices.Contains(v.Barred, m.ID) {
			k.emit(v.Epoch, event.Leave{Who: m.ID.Short(), Reason: "kicked"})
			lost = append(lost, m)
			continue
		}
		if v.Reason == "leave" || p.beat.Leaving {
			k.emit(v.Epoch, event.Leave{Who: m.ID.Short(), Reason: p.leaves(time.Now())})
			continue
		}
		k.emit(v.Epoch, event.Lost{Who: m.ID.Short(), Cause: p.suspected, DetectMS: milliseconds(time.Since(p.silence.last)),
			LimitMS: milliseconds(p.exceeded)})
		lost = append(lost, m)
	}
	return lost
}

// end records that members have left because the job is at its end.
func (k *keeper) end() { k.set(func(s *standing) { s.ended = true }) }

// shorten replaces in a text the IDs of the members of the present view, and of another one, by
// their short forms.
func (k *keeper) shorten(text string, other member.View) string {
	for _, m := range k.view.Members {
		text = strings.ReplaceAll(text, string(m.ID), m.ID.Short())
	}
	for _, m := range other.Members {
		text = strings.ReplaceAll(text, string(m.ID), ID(m.ID).Short())
	}
	return text
}

// over ends the membership of this identity.
func (k *keeper) over(p phase, n member.Notice) {
	n.Why = k.shorten(n.Why, n.Before)
	if p == left && k.stalled {
		p, n.Why = fenced, "stalled: it made no progress and held up the others, and said no Busy"
	}
	switch p {
	case left:
		k.emit(k.view.Epoch, event.Leave{Who: k.ep.Self.ID.Short(), Reason: "asked"})
	case fenced:
		k.emit(k.view.Epoch, event.Fenced{Who: k.ep.Self.ID.Short(), Reason: n.Why})
		k.revoke(fmt.Errorf("put out of the group: %s", n.Why))
	case kicked:
		k.emit(k.view.Epoch, event.Leave{Who: k.ep.Self.ID.Short(), Reason: "kicked"})
		k.revoke(errors.New("kicked out of the group"))
	}
	k.set(func(s *standing) { s.phase, s.why = p, n.Why })
}

// revoke revokes the session in use.
func (k *keeper) revoke(cause error) {
	k.mu.Lock()
	s := k.session
	k.mu.Unlock()
	if s != nil {
		s.Comm.Revoke(cause)
	}
}

// revokeFor revokes the session in use if a lost member is in it.
func (k *keeper) revokeFor(lost []Member) {
	k.mu.Lock()
	s := k.session
	k.mu.Unlock()
	if s == nil {
		return
	}
	for _, m := range lost {
		if rank := s.View.Rank(m.ID); rank >= 0 {
			s.Comm.Revoke(&collective.PeerError{Rank: rank, Peer: m.ID.Short(), Cause: "out of the group"})
			return
		}
	}
}

// enter records the session in use.
func (k *keeper) enter(s *Session) {
	k.mu.Lock()
	k.session = s
	k.mu.Unlock()
	k.do(k.agreed)
}

// agreed records that the first view is agreed, as the members around this one have connected to
// it. Pauses that were observed before say nothing about later pauses.
func (k *keeper) agreed() {
	if !k.entering() {
		return
	}
	k.first = [32]byte{}
	for _, p := range k.peers {
		p.restart(time.Now())
	}
}

// broken handles the end of v's session with an error while no later view is known. The argument
// blamed is the rank of the member that the error names, or -1. That member must first show that it
// lives. Then, or at once if the error names no member, broken requests a view of the same members.
func (k *keeper) broken(v View, blamed int) {
	k.do(func() {
		if k.view.Epoch != v.Epoch {
			return
		}
		if blamed >= 0 && blamed < len(v.Members) && v.Members[blamed].ID != k.ep.Self.ID {
			id := v.Members[blamed].ID
			if p := k.peerOf(id); p != nil {
				p.doubt = v.Epoch
				k.beatTo(id, true)
				return
			}
		}
		k.step(member.Renew{Epoch: v.Epoch})
	})
}

// leave requests to leave at the next boundary; ended: because the job is at its end.
func (k *keeper) leave(ended bool) {
	k.mu.Lock()
	k.doing.Ended = ended && !k.doing.Leaving
	k.doing.Leaving = true
	k.mu.Unlock()
	k.do(func() {
		k.beatAll() // so that the others log a leave, not a loss
		k.step(member.Leave{})
	})
}

// dead records a certain death.
func (k *keeper) dead(id ID) {
	k.do(func() {
		if p := k.peerOf(id); p != nil {
			p.suspected = "exit"
		}
		k.step(member.Dead{Peer: member.ID(id)})
	})
}

// makeWay handles a request to make way for the others. This member then leaves, unless it has
// reported a reason. If it leaves itself, the others need no quorum without it.
func (k *keeper) makeWay(y yield) {
	k.mu.Lock()
	mine := k.doing
	k.mu.Unlock()
	if y.Epoch != k.view.Epoch || mine.Entered > y.Epoch || mine.Busy != "" || k.stalled {
		return
	}
	k.stalled = true
	k.beatAll() // so that the others log that this member was stalled, not that it was asked to leave
	k.step(member.Leave{})
}
