package mesh

import (
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// Plan returns, by rank, whether the rank self of a view has lanes with the other rank before
// Connect returns. It returns nil, at every rank of the view, if all pairs have lanes then. All
// ranks follow the same plan. The planned pairs must connect all ranks, because revocations are
// passed on from rank to rank. Other pairs get their lanes when they are needed.
type Plan func(v elastic.View, self int) []bool

// maxFullMesh is the number of members up to which a view has lanes between all pairs from its
// beginning.
const maxFullMesh = 16

// sparse is the usual plan. In a view of n > maxFullMesh members each rank has lanes with the ranks
// at the distances 1, 2, 4, 8 and so on, in both directions of the ring of ranks. So each rank has
// about 2 log n lanes, and a revocation gets from any rank to any other in at most log n hops: one
// hop for each binary digit of the distance, as with the fingers of Chord (Stoica et al. 2001).
// Each rank also has lanes with the lowest rank of its memory group, over which the group agrees to
// share memory.
func sparse(v elastic.View, self int) []bool {
	n := len(v.Members)
	if n <= maxFullMesh {
		return nil
	}
	planned := make([]bool, n)
	for d := 1; d <= n/2; d *= 2 {
		planned[(self+d)%n], planned[(self-d+n)%n] = true, true
	}
	group := memoryGroup(v, self)
	for _, rank := range group {
		if self == group[0] || rank == group[0] {
			planned[rank] = rank != self
		}
	}
	return planned
}

// memoryGroup returns the ranks of a view that may share memory with the rank self, that rank
// included: all ranks of its host, or one of the equal parts into which a host with more than
// shm.MaxRanks ranks is divided. It returns nil if the host of self is not stated.
func memoryGroup(v elastic.View, self int) []int {
	here := sameHost(v, self)
	parts := (len(here) + shm.MaxRanks - 1) / shm.MaxRanks
	for i := range parts {
		part := here[i*len(here)/parts : (i+1)*len(here)/parts]
		if part[len(part)-1] >= self {
			return part
		}
	}
	return nil
}

// sameHost returns the ranks of a view that are on the host of the rank self, that rank included.
// It compares the hosts that the members state. It returns nil if the host of self is not stated.
func sameHost(v elastic.View, self int) (ranks []int) {
	at := hostOf(v.Members[self])
	if at == [2]string{} {
		return nil
	}
	for rank, m := range v.Members {
		if hostOf(m) == at {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// hostOf returns a key of a member's host. The keys of two members are equal if
// elastic.Member.Beside is true for them, and a key is cheaper to compare.
func hostOf(m elastic.Member) [2]string {
	if m.Machine != "" {
		return [2]string{m.Machine, ""}
	}
	return [2]string{"", m.Host}
}
