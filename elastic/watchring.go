package elastic

import (
	"slices"
)

// watchRing decides which members of a view watch each other. All members compute the same ring
// from the view. The members of a host are neighbours in the ring. Each member watches its two
// neighbours, and the two members at the distance far, which is at least the number of members of a
// host. So each member has watchers on two other hosts, or on one other host that has most of the
// members. If a host becomes unreachable, all its members are therefore suspected at about the same
// time. If they only watched each other, the other hosts would detect the loss pair by pair.
//
//	host      a           b           c           d
//	place     0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
//	watches      w     6  w  w  w        w                     member 5, distances 1 and 4
type watchRing struct {
	ranks  []int32 // by place
	places []int32 // by rank
	far    int     // the larger one of the two distances
}

// newWatchRing returns the ring of the members whose hosts have the given numbers, by rank, as
// View.Hosts returns them.
func newWatchRing(hosts []int) *watchRing {
	n := len(hosts)
	r := &watchRing{ranks: make([]int32, n), places: make([]int32, n), far: farDistance(hosts)}
	for rank := range r.ranks {
		r.ranks[rank] = int32(rank)
	}
	slices.SortStableFunc(r.ranks, func(a, b int32) int { return hosts[a] - hosts[b] })
	for place, rank := range r.ranks {
		r.places[rank] = int32(place)
	}
	return r
}

// farDistance returns a distance on the ring at which members are on different hosts: the number of
// members of the largest host, rounded up to a power of two. It is rounded because all members get
// new watchers when the distance changes. A host with more than half of the members does not count,
// because the other members cannot go on without it. If there are few hosts, the distance is half
// of the ring.
func farDistance(hosts []int) int {
	n := len(hosts)
	sizes := make([]int, n) // by number of the host, which is less than n
	for _, h := range hosts {
		sizes[h]++
	}
	far := 2
	for _, size := range sizes {
		for size <= n/2 && far < size {
			far *= 2
		}
	}
	return max(2, min(far, n/2))
}

// watchedAll is the largest number of members of a group in which all members watch each other.
const watchedAll = 5

// around returns the ranks of the members that the argument rank watches and that watch it, in the
// order of the ring from rank on. In a group of up to watchedAll members these are all other
// members; in a larger group they are at most four.
func (w *watchRing) around(rank int) (ranks []int) {
	if rank < 0 {
		return nil
	}
	for _, place := range ranksAround(len(w.ranks), int(w.places[rank]), []int{1, w.far}) {
		ranks = append(ranks, int(w.ranks[place]))
	}
	return ranks
}

// distance returns the distance of two ranks on the ring.
func (w *watchRing) distance(a, b int) int {
	places := int(w.places[a] - w.places[b])
	places = max(places, -places)
	return min(places, len(w.ranks)-places)
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
		after = append(after, (self+d)%n)
		if 2*d < n {
			before = append(before, (self-d+n)%n)
		}
	}
	slices.Reverse(before)
	return append(after, before...)
}
