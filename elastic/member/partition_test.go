package member

import (
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slowLargest tries every subset. It returns a largest subset without a cut pair. Of several such
// subsets it returns the first in the lexicographic order of their ranks.
func slowLargest(pairs [][2]int, out []bool) []bool {
	n := len(out)
	best, count := uint(0), -1
	for set := uint(0); set < 1<<n; set++ {
		ok := true
		for i, o := range out {
			ok = ok && !(o && set>>i&1 == 1)
		}
		for _, p := range pairs {
			ok = ok && (p[0] == p[1] || set>>p[0]&1 == 0 || set>>p[1]&1 == 0)
		}
		if size := bits.OnesCount(set); ok && (size > count || size == count && bits.Reverse(set) > bits.Reverse(best)) {
			best, count = set, size
		}
	}
	keep := make([]bool, n)
	for i := range keep {
		keep[i] = best>>i&1 == 1
	}
	return keep
}

// I13: the search returns the same set as slowLargest.
func TestLargestSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "n")
		rank := rapid.IntRange(0, n-1)
		pairs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]int {
			return [2]int{rank.Draw(t, "one"), rank.Draw(t, "other")}
		}), 0, 14).Draw(t, "pairs")
		out := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "out")
		got, want := newPartitionGraph(pairs, out).largest(), slowLargest(pairs, out)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// In a large group that is partitioned in two, or that has some dead members, the search finds a
// largest set. With an irregular pattern the search ends, too, with a valid set.
func TestLargestSetOfMany(t *testing.T) {
	const n = 1000
	var halves, stars, wild [][2]int
	for i := range n {
		for j := range i {
			if i >= 600 && j < 600 {
				halves = append(halves, [2]int{j, i})
			}
			if i%100 == 7 || j%100 == 7 {
				stars = append(stars, [2]int{i, j})
			}
			if (i*7919+j*104729)%11 == 0 {
				wild = append(wild, [2]int{i, j})
			}
		}
	}
	for name, test := range map[string]struct {
		pairs [][2]int
		want  int
	}{"halves": {halves, 600}, "stars": {stars, 990}, "wild": {wild, -1}} {
		keep := newPartitionGraph(test.pairs, make([]bool, n)).largest()
		kept := 0
		for _, k := range keep {
			if k {
				kept++
			}
		}
		if test.want >= 0 && kept != test.want {
			t.Errorf("%s: %d kept, want %d", name, kept, test.want)
		}
		for _, p := range test.pairs {
			if keep[p[0]] && keep[p[1]] {
				t.Fatalf("%s: keeps %v", name, p)
			}
		}
	}
}
