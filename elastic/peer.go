package elastic

import (
	"slices"
	"time"
)

// peer is a driver's record of another member.
type peer struct {
	detector
	helped     map[ID]bool   // helpers that were asked for an indirect probe, and whether they answered
	askers     []ID          // members that asked for an indirect probe, and get a message when the member has answered
	suspected  string        // cause of the suspicion, as in the log; empty if the member is trusted
	exceeded   time.Duration // limit of silence when the suspicion began; 0 if the cause is not silence
	near       bool          // the member is on this host
	answered   time.Time     // when the member last answered a request of this peer
	hostAsked  time.Time     // since when this peer asks the other members of the member's host, see askHost; zero if it does not ask
	withHost   bool          // suspected because no member of its host answers; only an answer to a request withdraws the suspicion
	down       bool          // the connection with the member has ended and no other was made
	brokeEpoch uint64        // epoch of a session that broke because of the member; 0 once a later message of the member has arrived
	heartbeat  heartbeat     // last heartbeat of the member
	blamed     time.Time     // when this peer last named the member as the only culprit of a stall
}

// leaves returns, for the log, why the member left; "" if this peer does not know. A member for
// which this peer recently waited counts as stalled even if the member's own report has not arrived
// yet.
func (p *peer) leaves(now time.Time) string {
	switch {
	case p.heartbeat.Stalled || !p.heartbeat.Leaving && now.Sub(p.blamed) < makeWayAfter:
		return "stalled"
	case p.heartbeat.Ended:
		return leftClosed
	case p.heartbeat.Failed:
		return leftFailed
	case p.heartbeat.Leaving:
		return leftAsked
	}
	return ""
}

// unremarkable reports whether the record of the member can be dropped, because later messages can
// restore all that it holds.
func (p *peer) unremarkable() bool {
	return p.suspected == "" && !p.down && p.brokeEpoch == 0 && len(p.askers) == 0 && !p.heartbeat.Leaving && p.blamed.IsZero()
}

// ranksAround returns the ranks that are at one of the given distances from the rank self, to
// either side, on a ring of n ranks. distances must ascend. The ranks are in the order of the ring,
// from self on. There are none if self is negative.
func ranksAround(n, self int, distances []int) []int {
	var after, before []int
	for _, d := range distances {
		if self < 0 || 2*d > n {
			break
		}
		if after = append(after, (self+d)%n); 2*d < n {
			before = append(before, (self-d+n)%n)
		}
	}
	slices.Reverse(before)
	return append(after, before...)
}
