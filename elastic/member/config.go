package member

// Config is the identity and the timing of a machine. Durations are in ticks; zero means the
// default. A tick should be about the longest delay of a message in good conditions, 5 to 10 ms.
// Longer ticks make view changes slower, but never unsafe.
type Config struct {
	Self Member
	// Any lets any survivors decide the next view without a quorum (--quorum any).
	Any bool
	// Contacts are members that a newcomer asks in turn. The newcomer believes no other peers.
	Contacts []ID
	// Grants are the grants of the first view, the same at all members.
	Grants []Grant
	// Keys signs and verifies the decisions of a view's members. Without Keys a member accepts
	// decisions only from members of its own view.
	Keys Keys
	// Views holds one copy of the views that several machines of a process have in common. If it is
	// nil each machine has its own.
	Views *Views

	Retry    uint64 // until an unanswered message is sent again; default 4
	Grace    uint64 // wait for the last promises once there are enough; default 3
	Patience uint64 // until the next member in rank order proposes; default 16
	Beat     uint64 // between two Status messages; default 10
	Promote  uint64 // from the tick at which all newcomers are present to their votes; default 20

	// Direct is the number of members up to which each member exchanges messages with all others;
	// default 64. In larger groups messages go along trees (Spread), and proofs and whole views are
	// sent on request.
	Direct int
	Fan    int // fan-out of a tree; default 16
}

// withDefaults returns c with defaults in place of zeros.
func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *uint64
		value uint64
	}{{&c.Retry, 4}, {&c.Grace, 3}, {&c.Patience, 16}, {&c.Beat, 10}, {&c.Promote, 20}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Direct == 0 {
		c.Direct = 64
	}
	if c.Fan < 2 {
		c.Fan = 16
	}
	if c.Views == nil {
		c.Views = NewViews(ownViews)
	}
	return c
}
