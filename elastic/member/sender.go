package member

import "slices"

// sender is what the author of a message is to this machine.
type sender uint8

const (
	// ofView: a member of the present view. All that was decided rests on these.
	ofView sender = iota
	// outsider: anybody else: a peer that wants to join, a member that was put out, one of
	// a later view or of another branch, or whoever else has a right to join.
	outsider
	// contact: to a peer that joins, one whom its owner named as a member.
	contact
	// unknown: to a peer that joins, anybody else.
	unknown
	senders
)

// sender classifies the author of a message.
func (m *Machine) sender(id ID) sender {
	switch {
	case m.phase == joining && slices.Contains(m.joiner.contacts, id):
		return contact
	case m.phase == joining:
		return unknown
	case m.view.Rank(id) >= 0:
		return ofView
	}
	return outsider
}

// treatment is how far a message counts.
type treatment uint8

const (
	// refused: nothing happens.
	refused treatment = iota
	// answered: its sender may be told what it lacks, or be asked; here nothing changes.
	answered
	// certified: it counts as far as its certificates go, from a view that is known here.
	certified
	// believed: it counts.
	believed
)

// treatmentOf is the table of the package comment, "Who is believed". An unknown kind has
// no row; ok is false.
func treatmentOf(k Kind, from sender) (t treatment, ok bool) {
	rows := [...][senders]treatment{
		//        ofView    outsider   contact   unknown
		Status:   {believed, answered, believed, refused},
		Ask:      {believed, answered, refused, refused},
		Tell:     {believed, answered, refused, refused},
		Prepare:  {believed, answered, refused, refused},
		Promise:  {believed, answered, refused, refused},
		Reject:   {believed, answered, refused, refused},
		Accept:   {believed, answered, refused, refused},
		Accepted: {believed, answered, refused, refused},
		Chain:    {believed, certified, believed, refused},
		Fence:    {refused, refused, believed, refused},
		Branch:   {believed, refused, refused, refused},
		Gather:   {believed, refused, refused, refused},
	}
	if k == 0 || int(k) >= len(rows) {
		return refused, false
	}
	return rows[k][from], true
}
