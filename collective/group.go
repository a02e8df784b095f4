package collective

import "slices"

// group is an ordered set of processes, seen from one of them (an MPI_Group). Each process has a
// rank in the group and a rank in the transport. The two ranks differ in a communicator from Split.
// A group is immutable.
type group struct {
	rank    int // of the caller
	size    int
	members []int // rank of the transport, by rank here; nil if both are the same
}

// newGroup returns the group of some ranks of the transport, in the given order. self is the
// caller's rank of the transport.
func newGroup(ranks []int, self int) group {
	return group{rank: slices.Index(ranks, self), size: len(ranks), members: ranks}
}

// transportRank converts a rank of the group to a rank of the transport.
func (g *group) transportRank(rank int) int {
	if g.members == nil {
		return rank
	}
	return g.members[rank]
}

// commRank converts a rank of the transport to a rank of the group. It is the inverse of
// transportRank, and returns -1 if the rank is not in the group.
func (g *group) commRank(at int) int {
	if g.members == nil {
		return at
	}
	return slices.Index(g.members, at)
}

// transportRanks returns all ranks of the group as ranks of the transport.
func (g *group) transportRanks() []int {
	all := make([]int, g.size)
	for rank := range all {
		all[rank] = g.transportRank(rank)
	}
	return all
}
