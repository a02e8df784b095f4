package elastic

import (
	"fmt"

	"github.com/elrun/elrun/elastic/member"
)

// author is the relation of the sender of a control message to this peer. The network has
// authenticated the sender's ID, and the sender has a right to join; nothing else is certain.
type author uint8

const (
	// ofView: a member of the present view.
	ofView author = iota
	// outsider: any other peer. To a newcomer every peer is an outsider.
	outsider
	authors
)

// treatment is the effect that a control message may have.
type treatment uint8

const (
	// refused: the message is dropped.
	refused treatment = iota
	// replied: the message may be answered, and changes no state of this peer.
	replied
	// passed: the membership machine decides, by the kind of the member.Message that the control
	// message carries (see the package comment of elastic/member, "Who is believed").
	passed
	// believed: the message takes effect.
	believed
)

// treatmentOf returns the treatment by the table of the package comment, "Who is believed". ok is
// false for an unknown kind.
func treatmentOf(k controlKind, from author) (t treatment, ok bool) {
	rows := [...][authors]treatment{
		//                ofView    outsider
		controlMember:         {passed, passed},
		controlHeartbeat:      {believed, replied},
		controlStepDown:       {believed, refused},
		controlForeignJoin:    {believed, refused},
		controlForeignJoinAck: {believed, refused},
		controlProbe:          {believed, refused},
		controlProbeReply:     {believed, refused},
		controlReverseDial:    {believed, refused},
	}
	if k == 0 || int(k) >= len(rows) {
		return refused, false
	}
	return rows[k][from], true
}

const (
	// budgetTicks is the period of the rate limit for outsiders, in ticks.
	budgetTicks = 50
	// outsiderMessages is the number of messages of one outsider that are read in a period: several
	// times the number that a newcomer, or a member that has missed views, sends.
	outsiderMessages = 100
	// maxOutsiders is the number of outsiders that are counted separately in a period. All other
	// outsiders together have the limit of one outsider.
	maxOutsiders = 256
)

// budget counts the messages of each outsider in the present period.
type budget map[ID]int

// spend counts a message of an outsider, and reports whether it is read.
func (b *budget) spend(id ID) bool {
	if *b == nil {
		*b = make(budget)
	}
	if _, known := (*b)[id]; !known && len(*b) >= maxOutsiders {
		id = ""
	}
	(*b)[id]++
	return (*b)[id] <= outsiderMessages
}

// happened handles an event of the control network.
func (d *driver) happened(e PeerEvent) {
	switch e.Kind {
	case PeerMessage:
		d.receive(e.Peer, e.Data) // before received, which reads from the heartbeat whether the sender hears this member
		d.watcher.received(e.Peer)
	case PeerUp:
		d.watcher.connected(e.Peer)
	case PeerDown:
		d.watcher.disconnected(e.Peer)
	}
}

// receive handles a control message, with the effect that treatmentOf grants to its sender.
// Malformed messages are dropped.
func (d *driver) receive(from ID, b []byte) {
	if len(b) == 0 {
		return
	}
	who := d.author(from)
	t, _ := treatmentOf(controlKind(b[0]), who)
	if t == refused || who == outsider && !d.budget.spend(from) {
		return
	}
	body := b[1:]
	switch controlKind(b[0]) {
	case controlMember:
		if m, err := member.Decode(body); err == nil && d.m != nil {
			m.From, m.To = member.ID(from), member.ID(d.ep.Self.ID)
			d.m.Step(member.Received{Message: m})
		}
	case controlHeartbeat:
		if t, err := decodeHeartbeat(body); err == nil {
			d.receiveHeartbeat(from, t)
		}
	case controlStepDown:
		if y, err := decodeStepDown(body); err == nil {
			d.makeWay(y)
		}
	case controlProbe, controlProbeReply:
		if about, err := decodeProbe(body); err == nil {
			d.watcher.receiveProbe(from, controlKind(b[0]), about)
		}
	case controlReverseDial:
		if c, err := decodeReverseDial(body); err == nil {
			d.admission.dialBack(c)
		}
	case controlForeignJoin:
		d.launcher.end()
		d.out.send(from, []byte{byte(controlForeignJoinAck)})
	case controlForeignJoinAck:
		d.launcher.acknowledged(&d.roster, from)
	}
}

// receiveHeartbeat handles a heartbeat.
func (d *driver) receiveHeartbeat(from ID, t heartbeat) {
	p := d.peerOf(from)
	if p == nil {
		// The sender has a right to join but is not in this member's view, so one of the two may
		// have missed a view. A newcomer (epoch 0) ignores the heartbeat: it contacts only members
		// that other members have named. But the sender may be a member of the view that admits this
		// newcomer, and may leave with the next view.
		switch {
		case d.view.Epoch > 0:
			d.step(member.Met{Peer: member.ID(from)})
		case t.Ended:
			d.status.endJob()
		}
		return
	}
	p.heartbeat = t
	if t.Reply {
		d.heartbeats.answer(from)
	}
	if t.Answer && !t.Deaf {
		d.watcher.answered(from, p)
	}
	if t.First != [32]byte{} && d.first != [32]byte{} && t.First != d.first {
		d.status.set(func(s *status) { s.wrong = errFirst(from) })
	}
	d.launcher.confirm(&d.roster)
	if t.Mistake != "" {
		d.learnMistake(from, t.Mistake, false)
	}
}

// errFirst means that two peers were given different first views.
func errFirst(id ID) error {
	return fmt.Errorf("%s has another first view than this peer: were they started by different launchers?", id.Short())
}
