package elastic

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/elrun/elrun/elastic/member"
)

// controlKind is the first byte of a control message, and gives its kind.
type controlKind byte

const (
	// controlMember carries a message between the membership machines of elastic/member.
	controlMember controlKind = iota + 1
	// controlHeartbeat is a heartbeat with the sender's report of itself.
	controlHeartbeat
	// controlStepDown asks a member for which the others wait to step down, that is, to leave the
	// group.
	controlStepDown
	// controlForeignJoin announces that a peer of another launcher is about to be admitted: from
	// then on no single launcher observes all deaths. controlForeignJoinAck acknowledges the
	// announcement.
	controlForeignJoin
	controlForeignJoinAck
	// controlProbe asks a helper for an indirect probe of another member. The helper sends two
	// controlProbeReply: one at once, which shows that the helper can be reached, and one when the
	// other member has answered the helper.
	controlProbe
	controlProbeReply
	// controlReverseDial asks a member to dial a newcomer, because the newcomer cannot dial the
	// member.
	controlReverseDial
	controlEnd
)

// heartbeat is the body of a controlHeartbeat: the heartbeat of a member.
type heartbeat struct {
	Entered uint64   // epoch of the session that the sender is in or is entering
	Step    uint64   // last step that the sender has committed
	Reply   bool     // the sender wants a heartbeat in return
	Deaf    bool     // the sender has received nothing from the receiver for too long
	Leaving bool     // the sender has asked to leave
	Ended   bool     // the sender leaves because the job is at its end
	Sole    bool     // as far as the sender knows, one launcher has started all members
	Stalled bool     // the sender steps down, because the others wait for it or for the reason in Busy
	Failed  bool     // the sender leaves because its loop has failed
	Answer  bool     // this answers a heartbeat of the receiver with Reply, so messages pass in both directions
	First   [32]byte // View.Hash of the sender's first view; zero once that view is agreed
	Busy    string   // why the sender makes no progress, or empty; not sent with a Mistake
	Mistake string   // the mistake of the program that ends the loops of all members, or empty
}

// stepsDown returns the reason of a sender that steps down without being asked; empty for any other.
func (h heartbeat) stepsDown() string {
	if !h.Stalled || h.Busy == bodyBusy {
		return ""
	}
	return h.Busy
}

// maxBusy bounds the reason of a busy member, in bytes.
const maxBusy = 100

// errControl means that a control message is malformed.
var errControl = errors.New("malformed control message")

// The flags of a heartbeat, one bit each.
const (
	flagReply = 1 << iota
	flagDeaf
	flagLeaving
	flagEnded
	flagSole
	flagFirst
	flagStalled
	flagAnswer
	flagMistake
	flagFailed
)

// append appends the encoded control message of a heartbeat to b.
func (h heartbeat) append(b []byte) []byte {
	flags := uint64(0)
	for i, set := range []bool{h.Reply, h.Deaf, h.Leaving, h.Ended, h.Sole, h.First != [32]byte{}, h.Stalled, h.Answer, h.Mistake != "", h.Failed} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, byte(controlHeartbeat))
	for _, v := range []uint64{flags, h.Entered, h.Step} {
		b = binary.AppendUvarint(b, v)
	}
	if flags&flagFirst != 0 {
		b = append(b, h.First[:]...)
	}
	if h.Mistake != "" {
		return append(b, h.Mistake[:min(len(h.Mistake), maxMistake)]...)
	}
	return append(b, h.Busy[:min(len(h.Busy), maxBusy)]...)
}

// decodeHeartbeat decodes a heartbeat from the bytes after the kind: the flags, Entered and Step as
// unsigned varints, the 32 bytes of First if flagFirst is set, and up to the end Mistake if
// flagMistake is set, and Busy otherwise.
func decodeHeartbeat(b []byte) (heartbeat, error) {
	var t heartbeat
	var flags uint64
	for _, field := range []*uint64{&flags, &t.Entered, &t.Step} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return heartbeat{}, fmt.Errorf("heartbeat: %w", errControl)
		}
		*field, b = v, b[n:]
	}
	t.Reply, t.Deaf, t.Leaving, t.Ended = flags&flagReply != 0, flags&flagDeaf != 0, flags&flagLeaving != 0, flags&flagEnded != 0
	t.Sole, t.Stalled, t.Answer, t.Failed = flags&flagSole != 0, flags&flagStalled != 0, flags&flagAnswer != 0, flags&flagFailed != 0
	if flags&flagFirst != 0 {
		if len(b) < len(t.First) {
			return heartbeat{}, fmt.Errorf("heartbeat: %w", errControl)
		}
		b = b[copy(t.First[:], b):]
	}
	text, longest := &t.Busy, maxBusy
	if flags&flagMistake != 0 {
		text, longest = &t.Mistake, maxMistake
	}
	if len(b) > longest {
		return heartbeat{}, fmt.Errorf("heartbeat with a text of %d bytes, want at most %d: %w", len(b), longest, errControl)
	}
	*text = string(b)
	return t, nil
}

// stepDown is the body of a controlStepDown: a request to leave the group.
type stepDown struct {
	Epoch   uint64 // epoch of the session in which the others wait for the receiver
	Entered uint64 // epoch of the last session that the receiver has entered, as far as the sender knows
}

// append appends the encoded control message of the request to b.
func (s stepDown) append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(controlStepDown)), s.Epoch)
	return binary.AppendUvarint(b, s.Entered)
}

// decodeStepDown decodes a request to step down from the bytes after the kind.
func decodeStepDown(b []byte) (stepDown, error) {
	var y stepDown
	for _, field := range []*uint64{&y.Epoch, &y.Entered} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return stepDown{}, fmt.Errorf("request to step down: %w", errControl)
		}
		*field, b = v, b[n:]
	}
	if len(b) > 0 {
		return stepDown{}, fmt.Errorf("request to step down with %d bytes too many: %w", len(b), errControl)
	}
	return y, nil
}

// probeMessage is the body of a controlProbe and of a controlProbeReply.
type probeMessage struct {
	About ID   // the member that is probed
	Heard bool // in a controlProbeReply: that member has answered the helper since the probe
}

// append appends the encoded control message of a probe to b.
func (p probeMessage) append(kind controlKind, b []byte) []byte {
	heard := byte(0)
	if p.Heard {
		heard = 1
	}
	return append(append(b, byte(kind), heard), p.About...)
}

// decodeProbe decodes a probeMessage from the bytes after the kind.
func decodeProbe(b []byte) (probeMessage, error) {
	if len(b) < 2 || len(b) > 1+member.MaxID || b[0] > 1 {
		return probeMessage{}, fmt.Errorf("probe: %w", errControl)
	}
	return probeMessage{About: ID(b[1:]), Heard: b[0] == 1}, nil
}

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

// receive handles a control message, with the effect that treatmentOf grants to its sender.
// Malformed messages are dropped.
func (d *driver) receive(from ID, b []byte) {
	if len(b) == 0 {
		return
	}
	who := d.roster.author(from)
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
			d.admitter.dialBack(c)
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
	p := d.roster.peerOf(from)
	if p == nil {
		// The sender has a right to join but is not in this member's view, so one of the two may
		// have missed a view. A newcomer (epoch 0) ignores the heartbeat: it contacts only members
		// that other members have named. But the sender may be a member of the view that admits this
		// newcomer, and may leave with the next view.
		switch {
		case d.roster.view.Epoch > 0:
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
	if t.First != [32]byte{} && d.roster.first != [32]byte{} && t.First != d.roster.first {
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

// reverseDial is the body of a controlReverseDial: the newcomer to dial, described as in
// member.Member.
type reverseDial struct {
	ID   ID
	Info string
}

// append appends the encoded control message of the request to b.
func (r reverseDial) append(b []byte) []byte {
	b = append(b, byte(controlReverseDial), byte(len(r.ID))) // member.MaxID fits in a byte
	return append(append(b, r.ID...), r.Info...)
}

// decodeReverseDial decodes a reverseDial from the bytes after the kind.
func decodeReverseDial(b []byte) (reverseDial, error) {
	if len(b) == 0 || b[0] == 0 || b[0] > member.MaxID || len(b)-1 < int(b[0]) || len(b)-1-int(b[0]) > member.MaxInfo {
		return reverseDial{}, fmt.Errorf("request to dial: %w", errControl)
	}
	n := 1 + int(b[0])
	return reverseDial{ID(b[1:n]), string(b[n:])}, nil
}
