package stall

import (
	"slices"
	"time"
)

// Why says how a chase ends. Of the two ways of a wait that has two, the higher one counts.
type Why uint8

// The ways in which a chase ends. The values are part of the wire format.
const (
	Inside   Why = iota // at a rank in the call that waits for nobody, or in a round of waits within one call
	Unknown             // it has not ended yet
	Deadlock            // in a round of blocking calls that differ
	Absent              // at a rank that is in no call
	Silent              // at a rank that does not answer
	Slow                // at a rank with a slow connection; of Blame only
)

// End is what a rank knows of the end of its waits: the chase along the waits-for graph.
type End struct {
	Why  Why
	Rank int32 // where it ends
	Hops int32 // waits on the way there
	Same int32 // the first so many are for ranks in the same call
	Firm int32 // in the first so many the rank blocks, and nothing is on its way to it
	Slow Link  // the slowest on the way
	// Path has the ranks that are waited for on the way, as far as they travel. In a round of
	// waits it ends with the rank that began it.
	Path []int32
}

// round returns the ranks of the round at the end of the way, the lowest first.
func (e *End) round() []int {
	last := e.Path[len(e.Path)-1]
	first := slices.Index(e.Path, last) + 1
	ring := e.Path[first:]
	if len(ring) == 0 {
		ring = e.Path
	}
	least := slices.Index(ring, slices.Min(ring))
	var all []int
	for i := range ring {
		all = append(all, int(ring[(least+i)%len(ring)]))
	}
	return all
}

// Link is two ranks of which one waits for the other, and how long that takes to answer it.
type Link struct {
	From, To int32
	Took     time.Duration
}

// noLink returns none.
func noLink() Link { return Link{From: -1, To: -1} }

// fits reports whether the ranks of e are among n.
func (e *End) fits(n int) bool {
	in := func(rank int32, least int32) bool { return rank >= least && int(rank) < n }
	for _, rank := range e.Path {
		if !in(rank, 0) {
			return false
		}
	}
	return in(e.Rank, -1) && in(e.Slow.From, -1) && in(e.Slow.To, -1) && e.Slow.Took >= 0 &&
		min(e.Hops, e.Same, e.Firm) >= 0 && int(max(e.Hops, e.Same, e.Firm)) <= n && (e.Why != Deadlock || len(e.Path) > 0)
}

// newsPath is up to how many waits the way itself is news: so short rounds are found at once,
// and long ones by and by, as in these the news would never end.
const newsPath = 8

// news reports whether those who have been told of f should be told of e.
func (e *End) news(f *End) bool {
	return e.Why != f.Why || e.Rank != f.Rank || e.Slow.grade() != f.Slow.grade() ||
		len(e.Path) <= newsPath && (e.Same != f.Same || e.Firm != f.Firm || !slices.Equal(e.Path, f.Path))
}

// grade is of what order of magnitude a link is slow, 0 for not at all: so that a time that
// passes is news now and then only.
func (l Link) grade() (n int) {
	for d := l.Took; d >= slowAfter; d /= 2 {
		n++
	}
	return n
}

// slower returns the slower one of two links.
func (l Link) slower(m Link) Link {
	if m.Took > l.Took {
		return m
	}
	return l
}
