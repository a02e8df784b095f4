package shm

import "time"

// storeMode is how a rank writes its results to the vectors of the other ranks in a direct call:
// by ordinary stores, which transfer each cache line from the core that has it, or by
// non-temporal stores, which bypass the caches. The faster mode depends on the distance between
// cores, which no system reports, and virtual cores move within seconds. So each rank measures
// for itself; ranks may use different modes in one call.
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
	// warmupCalls is the number of first calls that try the modes in turn. The very first one
	// also takes page faults.
	warmupCalls = 6
	// probeEvery is the number of calls after which the other mode is probed once. If the other
	// mode takes a third longer, probing costs one per cent of the time of all calls.
	probeEvery = 32
)

// nonTemporalCount returns how many of the ranks' vectors are written by non-temporal stores. The
// rank's own vector is not, as it stays in the rank's cache.
func (m storeMode) nonTemporalCount(ranks int) int {
	if m == nonTemporal {
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
func (c *storeChooser) choose() storeMode {
	best, other := cached, nonTemporal
	if c.cost[nonTemporal] < c.cost[cached] {
		best, other = other, best
	}
	c.calls++
	switch {
	case c.calls <= warmupCalls:
		return storeMode(c.calls) % storeModes
	case c.calls%probeEvery == 0:
		return other
	}
	return best
}

// record takes the duration of a call; bytes is the number of bytes that the call stored, at least
// one. Interruptions only lengthen a call. So a lower cost replaces the recorded one at once, and a
// higher cost raises it by a quarter of the difference, but at most to one and a quarter times its
// value.
func (c *storeChooser) record(m storeMode, bytes int, d time.Duration) {
	cost := float64(max(d, 1)) / float64(bytes)
	if before := c.cost[m]; before > 0 && cost > before {
		cost = before + (min(cost, 2*before)-before)/4
	}
	c.cost[m] = cost
}
