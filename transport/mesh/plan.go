package mesh

import (
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// Plan returns, by rank, whether the rank self of a view has lanes with that rank before Connect
// returns. It returns nil, at every rank of the view, if all pairs have them. All ranks follow the
// same plan. The planned pairs must connect all ranks, as revocations are passed on from rank to
// rank. Other pairs get their lanes when they are needed.
type Plan func(v elastic.View, self int) []bool

// maxFullMesh is the number of members up to which a view has lanes between all pairs from its
// beginning.
const maxFullMesh = 16

// sparse is the usual plan. In a view of more than maxFullMesh members each rank has lanes with the
// first rank of its memory group, over which the group agrees to share memory. The first rank of
// each group has lanes with the first ranks at the distances 1, 2, 4, 8 and so on, in both
// directions of the ring of first ranks. So a revocation gets from any rank to any other in lg h + 2
// steps, where h is the number of groups: those between two groups are the binary digits of the
// distance, as with the fingers of Chord (Stoica et al. 2001).
//
// Within a host the other pairs are not planned, as each lane is a socket of its own there, and is
// made in a tenth of a millisecond.
func sparse(v elastic.View, self int) []bool {
	n := len(v.Members)
	if n <= maxFullMesh {
		return nil
	}
	planned := make([]bool, n)
	firsts := firstRanks(v)
	if at, first := slices.BinarySearch(firsts, self); first {
		h := len(firsts)
		for d := 1; d <= h/2; d *= 2 {
			planned[firsts[(at+d)%h]], planned[firsts[(at-d+h)%h]] = true, true
		}
	}
	group := memoryGroup(v, self)
	for _, rank := range group {
		if self == group[0] || rank == group[0] {
			planned[rank] = rank != self
		}
	}
	return planned
}

// firstRanks returns the lowest rank of each memory group of a view, in the order of ranks. A rank
// whose host is not stated is a group of its own.
func firstRanks(v elastic.View) (firsts []int) {
	hosts := make(map[[2]string][]int)
	for rank, m := range v.Members {
		if at := hostOf(m); at != [2]string{} {
			hosts[at] = append(hosts[at], rank)
			continue
		}
		firsts = append(firsts, rank)
	}
	for _, here := range hosts {
		for _, group := range memoryGroups(here) {
			firsts = append(firsts, group[0])
		}
	}
	slices.Sort(firsts)
	return firsts
}

// memoryGroup returns the ranks of a view that may share memory with the rank self, that rank
// included. It returns nil if the host of self is not stated.
func memoryGroup(v elastic.View, self int) []int {
	for _, group := range memoryGroups(sameHost(v, self)) {
		if group[len(group)-1] >= self {
			return group
		}
	}
	return nil
}

// memoryGroups divides the ranks of a host into memory groups: as few parts as have at most
// shm.MaxRanks ranks each, of equal size.
func memoryGroups(here []int) (groups [][]int) {
	parts := (len(here) + shm.MaxRanks - 1) / shm.MaxRanks
	for i := range parts {
		groups = append(groups, here[i*len(here)/parts:(i+1)*len(here)/parts])
	}
	return groups
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

// hostOf returns a key of a member's host: it is equal for two members where elastic.Member.Beside
// is true, and cheaper to compare.
func hostOf(m elastic.Member) [2]string {
	if m.Machine != "" {
		return [2]string{m.Machine, ""}
	}
	return [2]string{"", m.Host}
}
