package shm

import (
	"math/bits"
	"time"
)

// policies are the heuristics of a lane and their state. They change the duration of calls, never
// the results. A heuristic is off if its line in Segment.policies is deleted.
type policies struct {
	busyPoll   bool // a wait begins with polls; otherwise it begins with yields
	rebalance  bool // a waiting rank moves to a core with fewer ranks
	stealing   bool // ranks of one core reduce each other's short chunks
	storeModes bool // long vectors are written in the store mode that takes the least time

	cpuUpdated time.Time // time of the last updateCPU that did something
	chooseFrom int       // bytes; it is a field so that tests can lower it
	// choosers choose the store mode of direct calls, by the bit length of their size in bytes.
	choosers [bits.UintSize + 1]storeChooser
}

// updateEvery is the least time between two calls of updateCPU that do something. A migration takes
// some tens of microseconds.
const updateEvery = 500 * time.Microsecond

// stealBelow is the length in bytes below which a vector's chunks may be stolen. Stealing saves
// the context switch to the chunk's own rank. A chunk of a longer vector takes longer than a
// context switch, and is slower to reduce for a process that has not touched its pages.
const stealBelow = 128 << 10

// storeMode is how a rank writes its results to the vectors of the other ranks in a direct call: by
// ordinary stores, which transfer each cache line from the core that owns the line, or by
// non-temporal stores, which bypass the caches. The faster mode depends on the distance between
// cores, which no system reports, and virtual cores move within seconds. So each rank measures for
// itself; ranks may use different modes in one call.
type storeMode int

const (
	cached storeMode = iota
	nonTemporal
	storeModes
)

const (
	// chooseFrom is the least length of a vector, in bytes, for which a mode is chosen. Shorter
	// calls use ordinary stores, as reading the clock would take some per cent of their time.
	chooseFrom = 128 << 10
	// warmupCalls is the number of first calls that try the modes in turn. The first call also
	// takes page faults.
	warmupCalls = 6
	// probeEvery is the number of calls after which the other mode is probed once. If the other
	// mode takes a third longer, probing costs one per cent of the time of all calls.
	probeEvery = 32
)

// nonTemporalCount returns how many of the ranks' vectors are written by non-temporal stores. The
// rank's own vector is written by ordinary stores, because it stays in the rank's cache.
func (s storeMode) nonTemporalCount(ranks int) int {
	if s == nonTemporal {
		return ranks - 1
	}
	return 0
}

// storeChooser chooses the store mode for vectors of about one length, by the recent cost of each
// mode.
type storeChooser struct {
	calls int
	cost  [storeModes]float64 // in nanoseconds per byte
}

// choose returns the mode for the next call.
func (s *storeChooser) choose() storeMode {
	best, other := cached, nonTemporal
	if s.cost[nonTemporal] < s.cost[cached] {
		best, other = other, best
	}
	s.calls++
	switch {
	case s.calls <= warmupCalls:
		return storeMode(s.calls) % storeModes
	case s.calls%probeEvery == 0:
		return other
	}
	return best
}

// record updates the cost of mode m by the duration d of a call; bytes is the number of bytes that
// the call stored, at least one. Interruptions only lengthen a call. So a lower cost replaces the
// recorded one at once, and a higher cost raises it by a quarter of the difference, but at most to
// one and a quarter times its value.
func (s *storeChooser) record(m storeMode, bytes int, d time.Duration) {
	cost := float64(max(d, 1)) / float64(bytes)
	if before := s.cost[m]; before > 0 && cost > before {
		cost = before + (min(cost, 2*before)-before)/4
	}
	s.cost[m] = cost
}
