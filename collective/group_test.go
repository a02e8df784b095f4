package collective

import (
	"slices"
	"testing"
)

// Ranks of the transport and ranks of the group convert into each other.
func TestGroupRanks(t *testing.T) {
	whole, part := group{rank: 2, size: 4}, newGroup([]int{5, 3, 9}, 9)
	if part.rank != 2 || part.size != 3 {
		t.Errorf("rank %d of %d, want 2 of 3", part.rank, part.size)
	}
	if got := whole.transportRanks(); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("ranks %v of the whole transport", got)
	}
	if got := part.transportRanks(); !slices.Equal(got, []int{5, 3, 9}) {
		t.Errorf("ranks %v of the part", got)
	}
	for _, g := range []group{whole, part} {
		for rank := range g.size {
			if got := g.commRank(g.transportRank(rank)); got != rank {
				t.Errorf("rank %d became %d", rank, got)
			}
		}
	}
	if got := part.commRank(4); got != -1 {
		t.Errorf("a rank outside has rank %d in the group", got)
	}
}
