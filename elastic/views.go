package elastic

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/event"
)

// entered makes v the present view. It logs the changes, introduces new members to the network before
// anything is sent to them, and revokes sessions that cannot go on.
func (d *driver) entered(mv member.View) {
	old := d.view
	v := d.convert(mv, old)
	came, left := v.changes(old)
	d.replace(v)
	if _, nobody := d.cfg.Sink.(event.Discard); !nobody {
		d.emit(v.Epoch, event.View{Members: short(v.Members), Voters: shortIDs(v.Voters), Reason: v.Reason})
	}
	d.welcome(came, old.Epoch > 0)
	gone := d.farewell(left, mv.Left)
	d.status.set(func(s *status) {
		s.phase, s.view = max(s.phase, inside), v
		s.former = slices.Concat(gone, s.former)
		s.former = s.former[:min(len(s.former), maxFormer)]
	})
	if d.cfg.OnView != nil {
		d.cfg.OnView(v)
	}
	// An error means that a member has given an invalid address. The failure detector then suspects
	// the member as unreachable.
	_ = d.ep.Network.Introduce(came)
	// A newcomer has not received the heartbeats that this member sent when it asked to leave. If
	// all members leave at the end of the job, only these heartbeats tell the newcomer of the end.
	if old.Epoch > 0 && d.report.get().Leaving {
		for _, m := range came {
			d.heartbeats.send(m.ID, false)
		}
	}
	switch v.Reason {
	// A renewed view has the same members, so the session must be revoked even though no member is
	// lost.
	case "renew":
		d.session.revoke(fmt.Errorf("epoch %d begins, because the session broke", v.Epoch))
	case "forced", "lost", "kick":
		d.session.revokeFor(gone)
	}
}

// maxFormer bounds the lost members that are remembered.
const maxFormer = 32

// welcome records new members. The silence of a new member counts from now.
func (d *driver) welcome(came []Member, later bool) {
	foreign := func(m Member) bool { return m.Launcher != d.ep.Self.Launcher }
	if d.view.Epoch > 1 && slices.ContainsFunc(d.view.Members, foreign) {
		d.launcher.end()
		d.launcher.settled = true // the foreign member was admitted only after all members had acknowledged
	}
	for _, m := range came {
		if m.ID == d.ep.Self.ID {
			continue
		}
		d.admission.joined(m.ID)
		if len(d.view.Members) <= greetedAll {
			d.peerOf(m.ID)
		}
		if later {
			d.emit(d.view.Epoch, event.Join{Who: m.ID.Short(), Reason: "admitted"})
		}
	}
	watched := d.watched()
	for _, id := range watched {
		d.peerOf(id)
	}
	// In a large group only records that matter are kept, so memory does not grow with the group.
	if len(d.view.Members) > greetedAll {
		maps.DeleteFunc(d.peers, func(id ID, p *peer) bool { return p.unremarkable() && !slices.Contains(watched, id) })
	}
}

// farewell removes the records of the members in gone, and returns the members that were lost or
// kicked. The members in asked have left at their own request.
func (d *driver) farewell(gone []Member, asked []member.ID) (lost []Member) {
	v := d.view
	for _, m := range gone {
		p := d.peers[m.ID]
		if p == nil {
			p = &peer{detector: detector{silence: newSilence(time.Now())}} // this member has no record
		}
		delete(d.peers, m.ID)
		if p.heartbeat.Ended {
			d.status.endJob()
		}
		if slices.Contains(v.Barred, m.ID) {
			d.emit(v.Epoch, event.Leave{Who: m.ID.Short(), Reason: "kicked"})
			lost = append(lost, m)
			continue
		}
		// A change may contain both losses and leaves. A member that asked to leave may also be lost
		// before the others have agreed; it counts as left, too.
		if slices.Contains(asked, member.ID(m.ID)) || v.Reason == "leave" || p.heartbeat.Leaving || p.heartbeat.Stalled {
			d.emit(v.Epoch, event.Leave{Who: m.ID.Short(), Reason: p.leaves(time.Now())})
			continue
		}
		d.emit(v.Epoch, event.Lost{Who: m.ID.Short(), Cause: p.suspected, DetectMS: milliseconds(time.Since(p.silence.last)),
			LimitMS: milliseconds(p.exceeded)})
		lost = append(lost, m)
	}
	return lost
}

// over ends the membership of this identity.
func (d *driver) over(p phase, n member.Notice) {
	n.Why = d.shorten(n.Why, n.Before)
	if p == left && d.report.get().Stalled {
		p, n.Why = fenced, "stalled: the others waited for this peer, and its program did not call Busy"
	}
	switch p { // announceLeave logs a leave, with the step at which this peer ended
	case fenced:
		d.emit(d.view.Epoch, event.Fenced{Who: d.ep.Self.ID.Short(), Reason: n.Why})
		d.session.revoke(fmt.Errorf("put out of the group: %s", n.Why))
	case kicked:
		d.emit(d.view.Epoch, event.Leave{Who: d.ep.Self.ID.Short(), Reason: "kicked"})
		d.session.revoke(errors.New("kicked out of the group"))
	}
	d.status.set(func(s *status) { s.phase, s.why = p, n.Why })
}

// enter records the session in use.
func (d *driver) enter(s *Session) {
	d.session.Store(s)
	d.loop.do(d.agreed)
}

// broken handles the end of v's session with an error while no later view is known. The argument
// blamed is the rank of the member that the error names, or -1. That member must first show that it
// lives. After that, or at once if the error names no member, the driver requests a view of the
// same members.
func (d *driver) broken(v View, blamed int) {
	d.loop.do(func() {
		if d.view.Epoch != v.Epoch {
			return
		}
		if blamed >= 0 && v.Members[blamed].ID != d.ep.Self.ID {
			id := v.Members[blamed].ID
			if p := d.peerOf(id); p != nil {
				d.watcher.requireAnswer(id, p, v.Epoch)
				return
			}
		}
		d.step(member.Renew{Epoch: v.Epoch})
	})
}

// leave requests to leave at the next boundary. The argument ended means that this member leaves
// because the job is at its end.
func (d *driver) leave(ended bool) {
	d.report.leave(ended)
	d.loop.do(func() {
		d.heartbeats.sendAll() // so that the others log a leave, not a loss
		d.step(member.Leave{})
	})
}

// dead records that the process of a member has certainly ended.
func (d *driver) dead(id ID) { d.loop.do(func() { d.watcher.dead(id) }) }

// makeWay handles a request to step down. This member then leaves, unless it has reported a reason
// (Busy), has entered another session since the request was sent, or itself waits for others to
// enter the session. Because this member itself votes for its leave, the others need no quorum
// without it.
func (d *driver) makeWay(y stepDown) {
	mine := d.report.get()
	if y.Epoch != d.view.Epoch || mine.Entered > y.Entered || d.entry.waits(y.Epoch) || mine.Busy != "" || mine.Stalled {
		return
	}
	d.report.stall()
	d.heartbeats.sendAll() // so that the others log that this member was stalled, not that it left at its own request
	d.step(member.Leave{})
}

// short returns the short IDs of members.
func short(members []Member) []string {
	var out []string
	for _, m := range members {
		out = append(out, m.ID.Short())
	}
	return out
}

// shortIDs returns the short forms of IDs.
func shortIDs(ids []ID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, id.Short())
	}
	return out
}
