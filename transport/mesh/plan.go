package mesh

import (
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// Plan says with which other ranks of a view a rank has lanes before Connect returns, by rank; nil stands for
// all of them, at every rank of the view. All ranks follow the same plan. What they plan must connect all of
// them, as revocations are passed on from rank to rank; other pairs get their lanes when they are needed.
type Plan func(v elastic.View, self int) []bool

// densest is the number of members up to which a view has lanes between all pairs from its beginning.
const densest = 16

// sparse is the usual plan. In a view of more than densest members each rank has lanes with those at the
// distances 1, 2, 4, 8 and so on, in both directions of the ring of ranks: so their number grows as log n,
// and so does the number of steps in which a revocation comes from any rank to any other. The processes of a
// host, which agree to share memory, also have lanes with the lowest rank there.
func sparse(v elastic.View, self int) []bool {
	n := len(v.Members)
	if n <= densest {
		return nil
	}
	planned := make([]bool, n)
	for d := 1; d <= n/2; d *= 2 {
		planned[(self+d)%n], planned[(self-d+n)%n] = true, true
	}
	beside := besides(v, self)
	for _, rank := range beside {
		if len(beside) <= shm.MaxRanks && (self == beside[0] || rank == beside[0]) {
			planned[rank] = rank != self
		}
	}
	return planned
}

// besides returns the ranks of a view that are on the host of one of them, as the members say, that rank
// included; none if that is not known.
func besides(v elastic.View, self int) (ranks []int) {
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

// hostOf returns what tells a member's host from others, as elastic.Member.Beside does, which takes longer.
func hostOf(m elastic.Member) [2]string {
	if m.Machine != "" {
		return [2]string{m.Machine, ""}
	}
	return [2]string{"", m.Host}
}
