package member

// Event is something that a Machine is told by Step.
type Event interface{ event() }

// The events.
type (
	// Received is a message that came from the member that Message.From names, which
	// the network has authenticated.
	Received struct{ Message Message }
	// Suspect says that this member cannot reach Peer: refused, reset, unanswered or
	// silent for too long. It may be wrong; that costs progress at most. Gone says that
	// nobody listens any more where Peer did, so that no answer is waited for.
	Suspect struct {
		Peer ID
		Gone bool
	}
	// Trust takes Suspect back.
	Trust struct{ Peer ID }
	// Dead says that Peer's process has ended: its launcher has its wait status. It
	// must be true, and is never taken back.
	Dead struct{ Peer ID }
	// Met says that a peer of the job was found that is not in this member's view: one
	// of the two may have missed something, or they are of different branches. For a
	// joiner it is one more to ask.
	Met struct{ Peer ID }
	// Admit lets a peer that asked (Notice Asked) in: it proved that it may, and is
	// level. Repeating it does no harm.
	Admit struct{ Request Request }
	// Issue wants a grant in the ledger, and Revoke one that lets in nobody any more.
	Issue  struct{ Grant Grant }
	Revoke struct{ Key ID }
	// Kick wants Peer put out and barred, whether it is a member or not.
	Kick struct{ Peer ID }
	// Leave asks for a view without this member. Keep stepping the machine until it
	// says Left and is Settled.
	Leave struct{}
	// Renew says that the session of the view of Epoch ended with an error though its
	// members can reach each other: a view is wanted, with the same members if need be.
	// One for an earlier epoch is ignored.
	Renew struct{ Epoch uint64 }
	// Stable says how many steps of the job are stable. It decides which of two
	// branches goes on.
	Stable struct{ Steps uint64 }
	// Sole says whether this member's launcher started every peer that was ever
	// admitted. Before another launcher's peer is admitted every member must have
	// been told that it is no longer so.
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

// NoticeKind tells notices apart.
type NoticeKind uint8

// The kinds of notices.
const (
	// Asked: Request wants to join. Answer with Admit, now or later, or not at all.
	Asked NoticeKind = iota + 1
	// QuorumLost: the voters that can be reached, Present, are fewer than Needed, and
	// no rule makes up for it. No view follows until QuorumBack.
	QuorumLost
	// QuorumBack takes QuorumLost back, by the rule in Why.
	QuorumBack
	// Decided: this member brought a change about; Why has the reason and the rule.
	Decided
	// Left: this member asked to leave and is out.
	Left
	// Fenced: this member is out without having asked for it. Its state is void: the
	// process may join again under a new ID.
	Fenced
	// Kicked: this member was put out on request, and is never let in again.
	Kicked
)

// String returns the name used in traces.
func (k NoticeKind) String() string {
	names := [...]string{"none", "asked", "quorum lost", "quorum back", "decided", "left", "fenced", "kicked"}
	if int(k) < len(names) {
		return names[k]
	}
	return "notice"
}

// Notice is something that a Machine tells its caller. Which fields are set follows
// from Kind.
type Notice struct {
	Kind    NoticeKind
	Request Request // Asked
	Present int     // QuorumLost, QuorumBack
	Needed  int
	Peer    ID // Fenced: who said so
	Why     string
}

// Ready is what a Machine wants done, in the order of its fields.
type Ready struct {
	// Messages are to be sent. Any of them may be lost.
	Messages []Message
	// Views are those entered since, oldest first. The last is the present one; the
	// others were skipped: sessions of theirs must be revoked, not entered (I5).
	Views []View
	// Notices in the order in which they came up.
	Notices []Notice
}
