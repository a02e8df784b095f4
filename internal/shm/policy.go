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

// policies returns the policies of a lane of the given number of ranks. docs/internals/shm.md has
// the gain of each heuristic.
func (s *Segment) policies(ranks int) policies {
	// Whether the ranks are processes; goroutines of one process are placed by Go's scheduler.
	processes := s.event != nil
	return policies{
		busyPoll:   s.size <= s.processors,               // a rank with a core of its own sees a message sooner by polls than by yields
		rebalance:  processes,                            // the kernel may leave waiting ranks on one core while another idles
		stealing:   processes && ranks >= 2*s.processors, // a time slice is longer than the reduction of a short chunk
		storeModes: true,
		chooseFrom: chooseFrom,
	}
}

// updateEvery is the least time between two calls of updateCPU that do something. A migration takes
// some tens of microseconds.
const updateEvery = 500 * time.Microsecond

// updateCPU records the core of this rank, which is about to wait, and may move it to another core.
func (l *Lane) updateCPU(now time.Time) {
	if !l.policies.rebalance && !l.policies.stealing || now.Sub(l.policies.cpuUpdated) < updateEvery {
		return
	}
	l.policies.cpuUpdated = now
	core, ok := currentCPU()
	if !ok {
		return
	}
	l.own().cpu.Store(core + 1)
	if l.policies.rebalance && l.migrate(core) {
		if core, ok = currentCPU(); ok {
			l.own().cpu.Store(core + 1)
		}
	}
}

// migrate moves this rank to another core that has at least two ranks fewer than the present core.
// It returns false if there is no such core. The kernel's load balancing would move the rank only
// some milliseconds later, as polling ranks look busy to the kernel. Only the highest rank of a
// core moves, because otherwise several ranks might move to the same core.
func (l *Lane) migrate(core uint32) bool {
	var on cpuLoad
	for r, p := range l.areas {
		c := p.cpu.Load() - 1
		if c == core && r > l.rank {
			return false
		}
		on.add(c)
	}
	return on.migrate(core)
}

// stealBelow is the length in bytes below which a vector's chunks may be stolen. Stealing saves
// the context switch to the chunk's own rank. A chunk of a longer vector takes longer than a
// context switch, and is slower to reduce for a process that has not touched its pages.
const stealBelow = 128 << 10

// claim reports whether this rank has claimed the chunk of owner in the present direct call, which
// all ranks must have posted. No rank can begin the next call before this rank has finished the
// present one.
func (l *Lane) claim(owner int) bool {
	taken := &l.areas[owner].chunk.claimed
	last := taken.Load()
	return uint32(last>>32) != l.directCalls && taken.CompareAndSwap(last, uint64(l.directCalls)<<32|uint64(l.rank))
}

// claimedBy returns the rank that has claimed the chunk of owner, or owner if no rank has.
func (l *Lane) claimedBy(owner int) int {
	if !l.policies.stealing {
		return owner
	}
	taken := l.areas[owner].chunk.claimed.Load()
	if by := uint32(taken); uint32(taken>>32) == l.directCalls && by < uint32(l.size) {
		return int(by)
	}
	return owner
}

// canSteal reports whether this rank may claim the chunk of owner. Both ranks must share a core,
// whose caches then have the vectors of both. Every core must have at least two ranks: a rank alone
// on a core would finish its own chunk at the same time.
func (l *Lane) canSteal(owner, bytes int) bool {
	if !l.policies.stealing || bytes >= stealBelow {
		return false
	}
	core := l.own().cpu.Load()
	return core != 0 && core == l.areas[owner].cpu.Load()
}

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
