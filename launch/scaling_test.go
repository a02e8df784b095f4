package launch

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPlanScale(t *testing.T) {
	for _, c := range []struct {
		running, leaving, waiting, taken []int
		n                                int
		want                             string
	}{
		{[]int{0, 1}, nil, nil, nil, 4, "starting peers 2, 3"},
		{[]int{0, 2}, nil, nil, nil, 3, "starting peer 1"},
		{[]int{0, 1, 2}, nil, nil, nil, 1, "asking peers 2, 1 to leave"},
		{[]int{0, 1}, nil, nil, nil, 2, "nothing to do"},
		{[]int{0, 1, 2}, []int{2}, nil, nil, 2, "nothing to do"},
		{[]int{0, 1, 2}, []int{2}, nil, nil, 3, "starting peer 3"},           // 2 still runs
		{[]int{1, 3}, nil, nil, []int{0, 1, 2, 3}, 4, "starting peers 4, 5"}, // other hosts have 0 and 2
		{[]int{1, 3}, nil, nil, []int{0, 1, 2, 3}, 0, "asking peers 3, 1 to leave"},
		{[]int{0, 1, 2, 3}, nil, []int{0, 2}, nil, 2, "asking peers 2, 0 to leave"}, // 1 and 3 hold the state
		{[]int{0, 1, 2, 3}, nil, []int{0}, nil, 2, "asking peers 0, 3 to leave"},
		{nil, nil, nil, nil, 11, "starting peers 0, 1, 2, 3, 4, 5, 6, 7, 3 more"},
	} {
		if p, err := planScale(c.running, c.leaving, c.waiting, c.taken, c.n); err != nil || p.String() != c.want {
			t.Errorf("%v without %v to %d: %v, %v, want %s", c.running, c.leaving, c.n, p, err, c.want)
		}
	}
	for _, n := range []int{-1, maxPeers + 1} {
		if p, err := planScale([]int{0}, nil, nil, nil, n); err == nil {
			t.Errorf("to %d: %v", n, p)
		}
	}
}

// The plan leads to n remaining peers, starts no index twice, and asks only running peers that
// have not been asked.
func TestPlanScaleProperty(t *testing.T) {
	indices := rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 0, 8, rapid.ID[int])
	rapid.Check(t, func(t *rapid.T) {
		running := indices.Draw(t, "running")
		var leaving []int
		for _, i := range running {
			if rapid.Bool().Draw(t, "leaves") {
				leaving = append(leaving, i)
			}
		}
		taken := indices.Draw(t, "taken")
		n := rapid.IntRange(0, 12).Draw(t, "n")
		p, err := planScale(running, leaving, indices.Draw(t, "waiting"), taken, n)
		if err != nil {
			t.Fatal(err)
		}
		stay := map[int]bool{}
		for _, i := range running {
			stay[i] = !slices.Contains(leaving, i)
		}
		for _, i := range p.leave {
			if !stay[i] {
				t.Fatalf("%d is asked to leave", i)
			}
			stay[i] = false
		}
		for _, i := range p.start {
			if _, there := stay[i]; there || slices.Contains(taken, i) {
				t.Fatalf("%d is started and runs", i)
			}
			stay[i] = true
		}
		if left := countTrue(slices.Collect(func(yield func(bool) bool) {
			for _, s := range stay {
				if !yield(s) {
					return
				}
			}
		})); left != n || len(p.start) > 0 && len(p.leave) > 0 {
			t.Fatalf("%+v leads to %d peers, want %d", p, left, n)
		}
	})
}
