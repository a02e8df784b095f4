package trainer

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// table returns a permutation as a slice.
func table(o permutation) []int {
	t := make([]int, o.n)
	for i := range t {
		t[i] = o.at(i)
	}
	return t
}

func TestOrderIsAPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "n")
		got := table(newPermutation(rapid.Uint64().Draw(t, "seed"), rapid.Int64Range(0, 1000).Draw(t, "pass"), n))
		slices.Sort(got)
		for i, v := range got {
			if v != i {
				t.Fatalf("sorted, element %d of %d is %d", i, n, v)
			}
		}
	})
}

func TestOrderOfEverySmallSize(t *testing.T) {
	for n := 1; n <= 70; n++ {
		got := table(newPermutation(7, 0, n))
		slices.Sort(got)
		if got[0] != 0 || got[n-1] != n-1 || len(slices.Compact(got)) != n {
			t.Errorf("%d samples: %v", n, got)
		}
	}
}

// If these values change, the same seed gives other weights. This must not happen by accident.
func TestOrderIsStable(t *testing.T) {
	tests := []struct {
		seed uint64
		pass int64
		n    int
		want []int
	}{
		{1, 0, 10, []int{0, 9, 3, 1, 5, 2, 4, 6, 8, 7}},
		{1, 1, 10, []int{7, 8, 9, 5, 2, 0, 1, 6, 4, 3}},
		{2, 0, 10, []int{5, 3, 8, 9, 7, 4, 6, 2, 1, 0}},
		{1, 0, 60000, []int{48781, 29065, 17851, 14285, 51648, 19826, 16256, 47611, 30655, 27981}},
	}
	for _, tt := range tests {
		o, got := newPermutation(tt.seed, tt.pass, tt.n), []int(nil)
		for i := range 10 {
			got = append(got, o.at(i))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("seed %d, pass %d, %d samples: %#v, want %v", tt.seed, tt.pass, tt.n, got, tt.want)
		}
	}
}

// Over many seeds every sample occurs about equally often at every position (chi-square test), and neighbours ascend about as often
// as they descend. A uniform order hardly ever exceeds the limits of this test.
func TestOrderIsEven(t *testing.T) {
	const n, seeds = 12, 12000
	var place [n * n]float64
	ascents := 0.0
	for seed := range uint64(seeds) {
		got := table(newPermutation(seed, int64(seed%3), n))
		for i, v := range got {
			place[i*n+v]++
			if i > 0 && v > got[i-1] {
				ascents++
			}
		}
	}
	chi := 0.0
	for _, count := range place {
		chi += (count - seeds/n) * (count - seeds/n) / (seeds / n)
	}
	if free := float64((n - 1) * (n - 1)); chi > free+4.5*math.Sqrt(2*free)+10 {
		t.Errorf("chi-square of positions is %.0f with %.0f degrees of freedom", chi, free)
	}
	if share := ascents / (seeds * (n - 1)); math.Abs(share-0.5) > 0.005 {
		t.Errorf("%.4f of neighbours ascend, want half", share)
	}
}
