package elastic

import (
	"slices"
	"time"
)

// peer is a driver's knowledge about another member.
type peer struct {
	detector
	helped     map[ID]bool   // helpers that were asked for an indirect probe, and whether they answered
	askers     []ID          // members that asked for an indirect probe, to be told of the member's next message
	suspected  string        // cause of the suspicion, as in the log; empty if the member is trusted
	exceeded   time.Duration // limit of silence at the suspicion; 0 if the cause is another
	near       bool          // it is on this host
	answered   time.Time     // when it last answered a request of this member
	hostAsked  time.Time     // since when the other members of its host are asked, see askHost; zero if they are not
	withHost   bool          // suspected because no member of its host answers: only an answer withdraws that
	down       bool          // its connection has ended and no other was made
	brokeEpoch uint64        // epoch of a session that broke because of it; 0 once it has been heard since
	heartbeat  heartbeat     // its last heartbeat
	blamed     time.Time     // when this member last named it as the only culprit of a stall
}

// leaves returns the reason, for the log, why the member left at its own request. A member that
// recently held up this one counts as stalled even if its own report has not arrived yet.
func (p *peer) leaves(now time.Time) string {
	if p.heartbeat.Stalled || !p.heartbeat.Leaving && now.Sub(p.blamed) < makeWayAfter {
		return "stalled"
	}
	return "asked"
}

// unremarkable reports whether the record of the member can be dropped: it holds nothing that could
// not be learned anew.
func (p *peer) unremarkable() bool {
	return p.suspected == "" && !p.down && p.brokeEpoch == 0 && len(p.askers) == 0 && !p.heartbeat.Leaving && p.blamed.IsZero()
}

// distances returns 1, 2, ..., most.
func distances(most int) []int {
	all := make([]int, most)
	for i := range all {
		all[i] = i + 1
	}
	return all
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
