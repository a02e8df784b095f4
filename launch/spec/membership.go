package spec

import (
	"fmt"
	"time"
)

// Membership has the options of Run for the membership of the group: how peers join, which members
// go on after losses, and whether crashed peers are restarted.
type Membership struct {
	// JoinTimeout is how long a peer that gets no answer looks for a member that admits it; 0 means
	// 1 min.
	JoinTimeout   time.Duration
	MinPeers      int           // the group waits while it has fewer members; 0 means 1
	Quorum        string        // majority (also "") or any: which part may go on after a loss
	RejoinTimeout time.Duration // how long the group waits when too few are left; 0 means 10 min
	Restart       int           // number of restarts of crashed peers, in all
	// StartTimeout is how long the peers wait for those that have not called Init at the start of a job:
	// then they begin without them. 0 means 10 min.
	StartTimeout time.Duration
	// StateRate is the largest rate at which each peer sends state to newcomers, in bytes per
	// second; 0 means no limit.
	StateRate int
}

const (
	// DefaultJoin is the default of Membership.JoinTimeout.
	DefaultJoin = time.Minute
	// defaultRejoin is the default of Membership.RejoinTimeout.
	defaultRejoin = 10 * time.Minute
	// defaultStart is the default of Membership.StartTimeout.
	defaultStart = 10 * time.Minute
)

// check returns an error for invalid values.
func (m *Membership) check() error {
	switch {
	case m.MinPeers < 0 || m.MinPeers > MaxMembers:
		return fmt.Errorf("minimum of %d peers, want 1 to %d", m.MinPeers, MaxMembers)
	case m.Restart < 0:
		return fmt.Errorf("limit of %d restarts, want 0 or more", m.Restart)
	case m.StateRate < 0:
		return fmt.Errorf("state rate of %d bytes a second, want more than 0", m.StateRate)
	case m.JoinTimeout < 0:
		return fmt.Errorf("join timeout %v, want more than 0", m.JoinTimeout)
	case m.RejoinTimeout < 0:
		return fmt.Errorf("rejoin timeout %v, want more than 0", m.RejoinTimeout)
	case m.StartTimeout < 0:
		return fmt.Errorf("start timeout %v, want more than 0", m.StartTimeout)
	}
	return oneOf("quorum", m.Quorum, "", "majority", "any")
}

// defaults sets the options that have no value.
func (m *Membership) defaults() {
	if m.JoinTimeout == 0 {
		m.JoinTimeout = DefaultJoin
	}
	if m.RejoinTimeout == 0 {
		m.RejoinTimeout = defaultRejoin
	}
	if m.StartTimeout == 0 {
		m.StartTimeout = defaultStart
	}
	m.MinPeers = max(1, m.MinPeers)
}
