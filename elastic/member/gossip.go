package member

import "math/bits"

// gossip sends periodic Status messages. A Status carries only the sender's epoch and view. They
// are enough for the receiver to see whether the sender or the receiver lags behind (I9).
type gossip struct {
	*membership
	local  *localState
	quorum *quorumMonitor

	heartbeats      uint64 // number of Status messages sent by heartbeat
	presenceReports int    // number of Status messages sent by reportPresence in this view
}

// enter begins a view, in which this member has sent no Status by reportPresence yet.
func (g *gossip) enter() { g.presenceReports = 0 }

// heartbeat sends a Status every Config.Beat ticks, to one member after another, so that a member
// that missed all other messages still receives the epoch and the hash of the sender's view.
// heartbeat reports whether a Status was due. The jitter keeps members that started at the same
// time from sending at the same time.
func (g *gossip) heartbeat() bool {
	if (g.tick+jitter(g.cfg.Self.ID, 0))%g.cfg.Beat != 0 {
		return false
	}
	g.heartbeats++
	if len(g.view.Members) > 1 {
		g.send(Message{Kind: Status, To: g.view.Members[g.target()].ID})
	}
	// Only a member without a vote waits to be promoted.
	if g.rank >= g.view.Voters {
		g.reportPresence()
	}
	return true
}

// reportPresence sends, in a large group, a Status to a member that may propose the promotion of
// this newcomer to voter, as proof that the newcomer is present. Every second Status goes to the
// first proposer in rank order, the remaining ones to all these members in turn, as the first may
// be stuck.
func (g *gossip) reportPresence() {
	if !g.large() {
		return // in a small group heartbeat reaches every member
	}
	if to := g.quorum.ahead(); len(to) > 0 {
		at := g.presenceReports % 2 * (1 + g.presenceReports/2)
		g.presenceReports++
		g.send(Message{Kind: Status, To: to[at%len(to)]})
	}
}

// target returns the rank of the member that gets the next Status of heartbeat. In a large group
// the receivers are the members at the distances 1, 2, 4, 8 and so on, to both sides on the ring of
// ranks. So each member sends to few members, and a chain of few messages connects any two members
// (the fingers of Chord: Stoica et al., 2001).
func (g *gossip) target() int {
	n := len(g.view.Members)
	if !g.large() {
		return (g.rank + 1 + int(g.heartbeats%uint64(n-1))) % n
	}
	levels := uint64(bits.Len(uint(n / 2))) // distances up to half of the ring
	d := 1 << (g.heartbeats / 2 % levels)
	if g.heartbeats%2 != 0 {
		d = n - d
	}
	// An unreachable member is replaced by the next member that can be reached.
	for tries := 1; tries < n && g.local.suspects.has(g.view.Members[(g.rank+d)%n].ID); tries++ {
		d = 1 + d%(n-1)
	}
	return (g.rank + d) % n
}
