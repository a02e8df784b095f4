package shm

import "time"

// way is how a rank writes what it has folded to the vectors of the others: it takes each line
// away from the core that has it, or writes past the caches. Which takes less time depends on
// how far cores are from each other, which no system tells, and virtual cores move within
// seconds. So each rank measures, for itself: what the others do need not be the same.
type way int

const (
	claiming way = iota
	passing
	ways
)

const (
	// pacedFrom is how long vectors have to be for that, in bytes: where calls are shorter, to
	// look at the clock takes some hundredths of their time.
	pacedFrom = 128 << 10
	// trials is how many calls try the ways in turn at first. In the very first one pages are
	// touched that never were before.
	trials = 6
	// tryEvery is how many calls there are from then on until the way that is not taken is tried
	// again: if it takes a third longer, that is a hundredth of all calls.
	tryEvery = 32
)

// past returns how many of the vectors of so many ranks are written past the caches: what is this
// rank's own stays in its cache.
func (w way) past(ranks int) int {
	if w == passing {
		return ranks - 1
	}
	return 0
}

// pace chooses ways for vectors of about one length, by what each has taken lately.
type pace struct {
	calls int
	cost  [ways]float64 // of a byte, in nanoseconds
}

// next returns the way to take.
func (p *pace) next() way {
	best, other := claiming, passing
	if p.cost[passing] < p.cost[claiming] {
		best, other = other, best
	}
	p.calls++
	switch {
	case p.calls <= trials:
		return way(p.calls) % ways
	case p.calls%tryEvery == 0:
		return other
	}
	return best
}

// took notes how long so many bytes took, at least one. A processor that does something else
// meanwhile makes it longer, and nothing makes it shorter: what is shorter than before counts at
// once, and what is longer bit by bit.
func (p *pace) took(w way, bytes int, d time.Duration) {
	cost := float64(max(d, 1)) / float64(bytes)
	if before := p.cost[w]; before > 0 && cost > before {
		cost = before + (min(cost, 2*before)-before)/4
	}
	p.cost[w] = cost
}
