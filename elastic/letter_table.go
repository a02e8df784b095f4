package elastic

import "github.com/elrun/elrun/elastic/member"

// author is what the sender of a control message is to this peer. The network has
// authenticated its ID, and it has a right to join; that is all that is sure.
type author uint8

const (
	// ofView: a member of the present view.
	ofView author = iota
	// outsider: anybody else, so to a peer that joins everybody.
	outsider
	authors
)

// author classifies the sender of a letter.
func (k *keeper) author(id ID) author {
	if k.isMember(id) {
		return ofView
	}
	return outsider
}

// treatment is how far a letter counts.
type treatment uint8

const (
	// refused: nothing happens.
	refused treatment = iota
	// replied: it may be answered, and changes nothing here.
	replied
	// passed: to the machine, which looks at the kind of the message within (the package
	// comment of elastic/member, "Who is believed").
	passed
	// believed: it counts.
	believed
)

// treatmentOf is the table of the package comment, "Who is believed". An unknown kind has
// no row; ok is false.
func treatmentOf(k letterKind, from author) (t treatment, ok bool) {
	rows := [...][authors]treatment{
		//                ofView    outsider
		letterMember:     {passed, passed},
		letterBeat:       {believed, replied},
		letterYield:      {believed, refused},
		letterForeign:    {believed, refused},
		letterForeignAck: {believed, refused},
		letterProbe:      {believed, refused},
		letterProbed:     {believed, refused},
	}
	if k == 0 || int(k) >= len(rows) {
		return refused, false
	}
	return rows[k][from], true
}

const (
	// budgetTicks is the period of the budget of outsiders.
	budgetTicks = 50
	// outsiderLetters is how many letters of one outsider are read in a period: several
	// times as many as a peer sends that joins or has missed something.
	outsiderLetters = 100
	// maxOutsiders is how many outsiders are told apart in a period. All others share what
	// one may send.
	maxOutsiders = 256
)

// budget counts the letters of outsiders in the present period.
type budget map[ID]int

// spend reports whether one more letter of an outsider is read.
func (b *budget) spend(id ID) bool {
	if *b == nil {
		*b = make(budget)
	}
	if _, known := (*b)[id]; !known && len(*b) >= maxOutsiders {
		id = ""
	}
	(*b)[id]++
	return (*b)[id] <= outsiderLetters
}

// letter takes in a control message, as far as its sender is believed. What makes no sense
// is dropped.
func (k *keeper) letter(from ID, b []byte) {
	if len(b) == 0 {
		return
	}
	who := k.author(from)
	t, _ := treatmentOf(letterKind(b[0]), who)
	if t == refused || who == outsider && !k.budget.spend(from) {
		return
	}
	body := b[1:]
	switch letterKind(b[0]) {
	case letterMember:
		if m, err := member.Decode(body); err == nil && k.m != nil {
			m.From, m.To = member.ID(from), member.ID(k.ep.Self.ID)
			k.m.Step(member.Received{Message: m})
		}
	case letterBeat:
		if t, err := decodeBeat(body); err == nil {
			k.takeBeat(from, t)
		}
	case letterYield:
		if y, err := decodeYield(body); err == nil {
			k.makeWay(y)
		}
	case letterProbe, letterProbed:
		if about, err := decodeProbe(body); err == nil {
			k.takeProbe(from, letterKind(b[0]), about)
		}
	case letterForeign:
		k.sole.end(k)
		k.out.send(from, []byte{byte(letterForeignAck)})
	case letterForeignAck:
		k.foreign.acknowledged(k, from)
	}
}
