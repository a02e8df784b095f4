package trainer

import "testing"

// A host is crowded by its own peers, not by those of others.
func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		host             []int
		rank, processors int
		want             bool
	}{
		{[]int{0}, 0, 1, false},
		{[]int{0, 1, 1}, 0, 1, false},
		{[]int{0, 1, 1}, 1, 1, true},
		{[]int{0, 1, 1}, 2, 2, false},
		{[]int{0, 1, 0, 0, 1}, 3, 2, true},
	} {
		if got := crowded(c.host, c.rank, c.processors); got != c.want {
			t.Errorf("hosts %v, rank %d, %d processors: %t", c.host, c.rank, c.processors, got)
		}
	}
}
