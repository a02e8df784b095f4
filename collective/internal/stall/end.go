package stall

import (
	"slices"
	"time"
)

// Cause is the reason why the chase along a chain of waits ends. Of the two chains of a wait, the
// chain whose Cause has the higher value is reported.
type Cause uint8

// The reasons, each with the place where the chase ends. The values are part of the wire format.
const (
	Inside   Cause = iota // at a rank that is in the call and waits for no other rank, or in a cycle of waits within one call
	Unknown               // the chase has not ended yet
	Deadlock              // in a cycle of blocking calls that is proven to be a deadlock, see Anchor
	Absent                // at a rank that is in no call
	Silent                // at a rank that does not answer
	Slow                  // at a rank with a slow connection; only Blame returns it
)

// End is a rank's knowledge of the end of its chain of waits.
type End struct {
	Cause Cause
	Rank  int32 // the rank at the end
	Hops  int32 // number of waits in the chain
	Slow  Link  // the slowest link of the chain
	// Path has the awaited ranks of the chain, as far as they fit in a signal. In a cycle it ends
	// with the rank that detected the cycle.
	Path   []int32
	Anchor Anchor
}

// cycle returns the ranks of the cycle at the end of the path, rotated so that the lowest rank
// comes first.
func (e *End) cycle() []int {
	last := e.Path[len(e.Path)-1]
	first := slices.Index(e.Path, last) + 1
	ring := e.Path[first:]
	if len(ring) == 0 {
		ring = e.Path
	}
	lowest := slices.Index(ring, slices.Min(ring))
	var all []int
	for i := range ring {
		all = append(all, int(ring[(lowest+i)%len(ring)]))
	}
	return all
}

// Link is an edge of the waits-for graph: From waits for To, and ResponseTime is how long To took
// to answer.
type Link struct {
	From, To     int32
	ResponseTime time.Duration
}

// noLink returns the Link that means no link.
func noLink() Link { return Link{From: -1, To: -1} }

// isValid reports whether e can come from one of n ranks: all its ranks and counts are in
// range, and a deadlock has a path.
func (e *End) isValid(n int) bool {
	in := func(rank int32, lowest int32) bool { return rank >= lowest && int(rank) < n }
	for _, rank := range e.Path {
		if !in(rank, 0) {
			return false
		}
	}
	return in(e.Rank, -1) && in(e.Slow.From, -1) && in(e.Slow.To, -1) && e.Slow.ResponseTime >= 0 &&
		in(e.Anchor.Rank, -1) && e.Anchor.Since >= 0 && min(e.Hops, e.Anchor.Hops) >= 0 && int(max(e.Hops, e.Anchor.Hops)) <= n && (e.Cause != Deadlock || len(e.Path) > 0)
}

// newsPath is the path length up to which a change of the path is news. So short cycles are found
// at once. In a long cycle each change would cause more and more news, so a long cycle is found
// only by the periodic asks.
const newsPath = 8

// news reports whether e differs enough from f to be sent to a rank that got f in its last tell.
func (e *End) news(f *End) bool {
	return e.Cause != f.Cause || e.Rank != f.Rank || e.Slow.grade() != f.Slow.grade() || e.Anchor != f.Anchor ||
		len(e.Path) <= newsPath && !slices.Equal(e.Path, f.Path)
}

// grade returns the order of magnitude of the response time in powers of two; 0 if it is below
// slowAfter. News compares grades: a response time that grows is news only when it has doubled.
func (l Link) grade() (n int) {
	for d := l.ResponseTime; d >= slowAfter; d /= 2 {
		n++
	}
	return n
}

// slower returns the slower of two links.
func (l Link) slower(m Link) Link {
	if m.ResponseTime > l.ResponseTime {
		return m
	}
	return l
}
