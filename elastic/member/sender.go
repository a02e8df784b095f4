package member

// sender is the relation of the author of a message to this machine.
type sender uint8

const (
	// ofView: a member of the present view. Only messages of such members are believed.
	ofView sender = iota
	// outsider: any other peer: a newcomer, a member that was put out, a member of a later view or
	// of another branch, or any other peer with a right to join.
	outsider
	// contact: for a newcomer, a peer that its caller named as a member.
	contact
	// unknown: for a newcomer, any other peer.
	unknown
	senders
)

// sender classifies the author of a message.
func (m *Machine) sender(id ID) sender {
	switch {
	case m.phase == joining:
		return m.joiner.sender(id)
	case m.view.Rank(id) >= 0:
		return ofView
	}
	return outsider
}

// treatment is the effect that a message may have.
type treatment uint8

const (
	// refused: the message is dropped.
	refused treatment = iota
	// answered: the sender may get the views that it lacks, or be asked for its view; nothing
	// changes at the receiver.
	answered
	// certified: the changes in the message count as far as certificates prove them, from a view
	// that the receiver knows.
	certified
	// believed: the message takes effect.
	believed
)

// treatmentOf returns the treatment by the table of the package comment, "Who is believed". ok is
// false for an unknown kind.
func treatmentOf(k Kind, from sender) (t treatment, ok bool) {
	rows := [...][senders]treatment{
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
