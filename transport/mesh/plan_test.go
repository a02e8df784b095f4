package mesh

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// spread returns a view of n members, of which each host has as many as the parameter each says.
func spread(n, each int) (v elastic.View) {
	for i := range n {
		v.Members = append(v.Members, elastic.Member{ID: elastic.ID(fmt.Sprint("peer ", i)), Host: fmt.Sprint("host ", i/each)})
	}
	return v
}

// Either both ranks of a pair plan its lanes or neither does. The number of lanes of a rank grows as log n. The
// lowest rank of a host has lanes with all others of the host. Small views have lanes between all ranks.
func TestSparse(t *testing.T) {
	if sparse(spread(maxFullMesh, 4), 0) != nil {
		t.Error("a small view has a plan")
	}
	for _, n := range []int{maxFullMesh + 1, 31, 32, 33, 64, 100, 257} {
		for _, each := range []int{1, 8, shm.MaxRanks, shm.MaxRanks + 1} {
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
		first := a - a%each
		if star := min(each, n-first) <= shm.MaxRanks; star && a != first && !plans[a][first] {
			t.Errorf("rank %d has no lanes with the first of its host", a)
		}
		if a != first && count > 2*bits.Len(uint(n))+1 {
			t.Errorf("rank %d has lanes with %d", a, count)
		}
	}
}
