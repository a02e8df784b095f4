package mesh

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// spread returns a view of n members. The parameter each is the number of members of one host.
func spread(n, each int) (v elastic.View) {
	for i := range n {
		v.Members = append(v.Members, elastic.Member{ID: elastic.ID(fmt.Sprint("peer ", i)), Host: fmt.Sprint("host ", i/each)})
	}
	return v
}

// Either both ranks of a pair plan its lanes or neither does. The number of lanes of a rank grows as log n. The
// lowest rank of a memory group has lanes with all others of the group. Small views have lanes between all ranks.
func TestSparse(t *testing.T) {
	if sparse(spread(maxFullMesh, 4), 0) != nil {
		t.Error("a small view has a plan")
	}
	for _, n := range []int{maxFullMesh + 1, 31, 32, 33, 64, 100, 257} {
		for _, each := range []int{1, 8, shm.MaxRanks, shm.MaxRanks + 1, 2*shm.MaxRanks + 1} {
			t.Run(fmt.Sprintf("%d ranks, %d on a host", n, each), func(t *testing.T) { checkSparse(t, n, each) })
		}
	}
}

func checkSparse(t *testing.T, n, each int) {
	v, plans := spread(n, each), make([][]bool, n)
	for self := range n {
		plans[self] = sparse(v, self)
	}
	for a := range n {
		count := 0
		for b := range n {
			if plans[a][b] != plans[b][a] || a == b && plans[a][b] {
				t.Fatalf("ranks %d and %d do not agree", a, b)
			}
			if plans[a][b] {
				count++
			}
		}
		group := memoryGroup(v, a)
		first := group[0]
		if a != first && !plans[a][first] {
			t.Errorf("rank %d has no lanes with the first of its memory group", a)
		}
		if a != first && count > 2*bits.Len(uint(n))+1 {
			t.Errorf("rank %d has lanes with %d", a, count)
		}
	}
}

// The ranks of a host are divided into as few memory groups as possible. The sizes of the groups
// differ by one rank at most. All ranks of a group find the same group.
func TestMemoryGroup(t *testing.T) {
	for _, each := range []int{1, 2, shm.MaxRanks, shm.MaxRanks + 1, 2 * shm.MaxRanks, 2*shm.MaxRanks + 1} {
		n := 2 * each
		v, groups := spread(n, each), make(map[int][]int) // by first rank
		for self := range n {
			group := memoryGroup(v, self)
			if !slices.Contains(group, self) || group[0]/each != self/each {
				t.Errorf("%d ranks on a host: rank %d is in group %v", each, self, group)
			}
			if other := groups[group[0]]; other != nil && !slices.Equal(other, group) {
				t.Errorf("%d ranks on a host: two ranks have the groups %v and %v", each, other, group)
			}
			groups[group[0]] = group
		}
		few := (each + shm.MaxRanks - 1) / shm.MaxRanks
		if len(groups) != 2*few {
			t.Errorf("%d ranks on a host are in %d groups, want %d", each, len(groups)/2, few)
		}
		for _, group := range groups {
			if len(group) < each/few || len(group) > (each+few-1)/few {
				t.Errorf("%d ranks on a host: a group has %d", each, len(group))
			}
		}
	}
	if group := memoryGroup(elastic.View{Members: make([]elastic.Member, 2)}, 0); group != nil {
		t.Errorf("ranks without a host are in group %v", group)
	}
}
