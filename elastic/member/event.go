package member

// Event is an input of a Machine, passed to Step.
type Event interface{ event() }

// The events.
type (
	// Received is a message from the peer Message.From, whose ID the network has authenticated.
	Received struct{ Message Message }
	// Suspect means that this member cannot reach Peer: the connection was refused or reset, or
	// Peer is silent for too long. A wrong suspicion can delay the group or put out a live member,
	// but cannot split the group, except with --quorum any. Gone means that no process listens at
	// Peer's addresses any longer, so that no answer is expected.
	Suspect struct {
		Peer ID
		Gone bool
	}
	// Trust withdraws Suspect.
	Trust struct{ Peer ID }
	// Dead means that Peer's process has ended: the kernel has told a process of its host. It must be
	// certain; the event is never withdrawn.
	Dead struct{ Peer ID }
	// Met reports a peer of the job that is not in this member's view: one of the two may have
	// missed a view, or the two are in different branches. A newcomer takes the peer as an
	// additional contact.
	Met struct{ Peer ID }
	// Admit admits a peer that asked (Notice Asked), has proved its right to join, and has received
	// the state of the job. Repeating the event does no harm.
	Admit struct{ Request Request }
	// Issue requests a new grant, and Revoke the end of a grant.
	Issue  struct{ Grant Grant }
	Revoke struct{ Key ID }
	// Kick requests that Peer is put out and barred, whether it is a member or not.
	Kick struct{ Peer ID }
	// Leave requests a view without this member. The caller continues to step the machine until the
	// Notice Left, and until the machine is Settled.
	Leave struct{}
	// Renew means that the session of the view of Epoch ended with an error although its members
	// can reach each other. The event requests a new view, if need be with the same members. The
	// event is ignored if Epoch is not the present epoch.
	Renew struct{ Epoch uint64 }
	// Stable reports the number of stable steps of the job. Of two branches the branch with more
	// stable steps goes on.
	Stable struct{ Steps uint64 }
	// Sole reports whether this member's launcher has started every peer that was ever admitted.
	// Before a peer of another launcher is admitted, every member must have received Sole{false}.
	Sole struct{ On bool }
)

func (Received) event() {}
func (Suspect) event()  {}
func (Trust) event()    {}
func (Dead) event()     {}
func (Met) event()      {}
func (Admit) event()    {}
func (Issue) event()    {}
func (Revoke) event()   {}
func (Kick) event()     {}
func (Leave) event()    {}
func (Renew) event()    {}
func (Stable) event()   {}
func (Sole) event()     {}

// NoticeKind is the kind of a Notice.
type NoticeKind uint8

// The kinds of notices.
const (
	// Asked: the peer of Request wants to join. The caller answers with Admit, now or later, or not
	// at all.
	Asked NoticeKind = iota + 1
	// QuorumLost: the number of voters that can be reached, Present, is below Needed, and no other
	// rule applies. No view follows until QuorumBack.
	QuorumLost
	// QuorumBack ends QuorumLost, by the rule in Why.
	QuorumBack
	// Decided: this member has decided a change; Why has the reason and the rule.
	Decided
	// Left: this member asked to leave and is out of the group.
	Left
	// Fenced: this member is out of the group without having asked to leave. Its state is void; the
	// caller may join again under a new ID.
	Fenced
	// Kicked: this member was put out on request, and is never admitted again.
	Kicked
)

// String returns the name used in traces.
func (n NoticeKind) String() string {
	names := [...]string{"none", "asked", "quorum lost", "quorum back", "decided", "left", "fenced", "kicked"}
	if int(n) < len(names) {
		return names[n]
	}
	return "notice"
}

// Notice is a report of a Machine to its caller. Kind determines which fields are set.
type Notice struct {
	Kind    NoticeKind
	Request Request // Asked
	Present int     // QuorumLost, QuorumBack
	Needed  int     // QuorumLost, QuorumBack
	// Peer is, in a Fenced notice, the peer that reported that this member is out; it may be empty.
	Peer   ID
	Before View   // Decided: the view that the change ends
	Why    string // reason, for people
}

// Ready is the output of a Machine. The caller handles the fields in order.
type Ready struct {
	// Messages are to be sent. Any of them may be lost.
	Messages []Message
	// Views are the views entered since the last Ready, oldest first. The last is the present one.
	// The others were skipped: their sessions must be revoked, not entered (I5).
	Views []View
	// Notices are in the order in which they arose.
	Notices []Notice
}
