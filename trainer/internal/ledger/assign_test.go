package ledger_test

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer/internal/ledger"
	"pgregory.net/rapid"
)

// setOf returns a set of the given microbatches, with a capacity of n.
func setOf(n int, microbatches ...int) ledger.Set {
	s := ledger.NewSet(n)
	for _, k := range microbatches {
		s.Add(k)
	}
	return s
}

func TestAssignTable(t *testing.T) {
	tests := []struct {
		name         string
		held         []ledger.Set
		microbatches int
		want         string
	}{
		{"nothing held", []ledger.Set{nil, nil, nil}, 8, "[[[0 3]] [[3 6]] [[6 8]]]"},
		{"a third rank died", []ledger.Set{setOf(9, 0, 1, 2), setOf(9, 3, 4, 5)}, 9, "[[[0 3] [6 8]] [[3 6] [8 9]]]"},
		{"one is behind", []ledger.Set{setOf(8, 0), setOf(8, 4, 5, 6)}, 8, "[[[0 4]] [[4 8]]]"},
		{"one has more than its share", []ledger.Set{setOf(8, 0, 1, 2, 3, 4, 5), nil, nil}, 8, "[[[0 6]] [[6 7]] [[7 8]]]"},
		{"all is held", []ledger.Set{setOf(3, 2), setOf(3, 0, 1)}, 3, "[[[2 3]] [[0 2]]]"},
		{"no microbatches", []ledger.Set{nil, nil}, 0, "[[] []]"},
		{"more ranks than microbatches", []ledger.Set{nil, setOf(2, 1), nil}, 2, "[[[0 1]] [[1 2]] []]"},
	}
	for _, tt := range tests {
		shares, kept := ledger.Assign(tt.held, nil, tt.microbatches)
		var got [][][2]int
		for _, s := range shares {
			got = append(got, s.Ranges())
		}
		if fmt.Sprint(got) != tt.want || slices.Contains(kept, false) {
			t.Errorf("%s: %v, kept %v, want %s", tt.name, got, kept, tt.want)
		}
	}
}

// If two ranks hold the same microbatch, it stays with the lower rank. The higher rank drops everything that it holds, also
// microbatches that no other rank holds.
func TestAssignOfAnOverlap(t *testing.T) {
	shares, kept := ledger.Assign([]ledger.Set{setOf(6, 2), setOf(6, 2, 3), setOf(6, 3, 4), setOf(70, 66)}, nil, 6)
	if !slices.Equal(kept, []bool{true, false, true, false}) {
		t.Fatalf("kept %v", kept)
	}
	if got := fmt.Sprint(shares[0].Ranges(), shares[1].Ranges(), shares[2].Ranges(), shares[3].Ranges()); got != "[[0 1] [2 3]] [[1 2]] [[3 5]] [[5 6]]" {
		t.Errorf("shares %v", got)
	}
}

// dealing computes the sizes of the shares of Assign without weights, one microbatch after the other: each free microbatch goes to
// the rank that has the fewest.
func dealing(held []ledger.Set, microbatches int) []int {
	totals, free := make([]int, len(held)), microbatches
	for r, h := range held {
		totals[r] = h.Len()
		free -= h.Len()
	}
	for range free {
		totals[slices.Index(totals, slices.Min(totals))]++
	}
	return totals
}

func TestAssignCoversEverythingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		microbatches, n := rapid.IntRange(0, 200).Draw(t, "microbatches"), rapid.IntRange(1, 9).Draw(t, "n")
		held := make([]ledger.Set, n)
		for r := range held {
			held[r] = ledger.NewSet(microbatches)
		}
		for k := range microbatches {
			if r := rapid.IntRange(-n, n-1).Draw(t, "holder"); r >= 0 {
				held[r].Add(k)
			}
		}
		shares, kept := ledger.Assign(held, nil, microbatches)
		owner := make([]int, microbatches)
		for r, s := range shares {
			if !kept[r] || len(held[r].Without(s)) > 0 {
				t.Fatalf("rank %d holds %v and has to contribute %v, kept %t", r, held[r].Ranges(), s.Ranges(), kept[r])
			}
			for _, k := range s.Without(nil) {
				owner[k]++
			}
		}
		for k, c := range owner {
			if c != 1 {
				t.Fatalf("microbatch %d is in %d shares", k, c)
			}
		}
		for r, want := range dealing(held, microbatches) {
			if shares[r].Len() != want {
				t.Fatalf("rank %d has %d of %d microbatches, dealt one by one %d", r, shares[r].Len(), microbatches, want)
			}
		}
	})
}

// If no rank holds a microbatch and all weights are equal, the shares are ranges of nearly equal length, in rank order.
func TestAssignOfNothingIsEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		microbatches, n := rapid.IntRange(0, 300).Draw(t, "microbatches"), rapid.IntRange(1, 20).Draw(t, "n")
		shares, _ := ledger.Assign(make([]ledger.Set, n), nil, microbatches)
		first, end := 0, 0
		for r, s := range shares {
			first, end = end, end+microbatches/n
			if r < microbatches%n {
				end++
			}
			if want := [][2]int{{first, end}}; first < end && !slices.Equal(s.Ranges(), want) || s.Len() != end-first {
				t.Fatalf("rank %d has %v, want %v", r, s.Ranges(), want)
			}
		}
	})
}

// For any held sets, overlapping or not, every microbatch is assigned once. If a rank keeps its set, the whole set is in its share.
func TestAssignOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		microbatches := rapid.IntRange(0, 100).Draw(t, "microbatches")
		word := rapid.SampledFrom([]uint64{0, 1, 3, 1 << 40, ^uint64(0)})
		held := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(word, 0, 3), func(w []uint64) ledger.Set { return w }), 1, 6).Draw(t, "held")
		shares, kept := ledger.Assign(held, nil, microbatches)
		total, seen := 0, map[int]bool{}
		for r, s := range shares {
			total += s.Len()
			for _, k := range s.Without(nil) {
				seen[k] = true
			}
			if kept[r] && len(held[r].Without(s)) > 0 {
				t.Fatalf("rank %d keeps %v and has %v", r, held[r].Ranges(), s.Ranges())
			}
		}
		if total != microbatches || len(seen) != microbatches {
			t.Fatalf("%d shares of %d different microbatches, want %d", total, len(seen), microbatches)
		}
	})
}

// With weights each rank gets as many microbatches as weighted computes, for any held sets.
func TestAssignMeetsWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wanted := rapid.SliceOfN(rapid.IntRange(0, 30), 1, 9).Draw(t, "wanted")
		microbatches := 0
		for _, w := range wanted {
			microbatches += w
		}
		if rapid.Bool().Draw(t, "more") {
			microbatches += rapid.IntRange(0, 50).Draw(t, "by")
		}
		held := make([]ledger.Set, len(wanted))
		for r := range held {
			held[r] = ledger.NewSet(microbatches)
		}
		for k := range microbatches {
			if r := rapid.IntRange(-len(wanted), len(wanted)-1).Draw(t, "holder"); r >= 0 {
				held[r].Add(k)
			}
		}
		shares, _ := ledger.Assign(held, wanted, microbatches)
		for r, want := range weighted(held, wanted, microbatches) {
			if shares[r].Len() != want {
				t.Fatalf("rank %d has %d, one by one %d", r, shares[r].Len(), want)
			}
		}
	})
}

// weighted computes the sizes of the shares of Assign with weights, one microbatch after the other: each free microbatch goes to the
// rank that has the fewest in proportion to its wanted number.
func weighted(held []ledger.Set, wanted []int, microbatches int) []int {
	if slices.Max(wanted) == 0 {
		return dealing(held, microbatches)
	}
	totals, free := make([]int, len(held)), microbatches
	for r, h := range held {
		totals[r] = h.Len()
		free -= h.Len()
	}
	for range free {
		best := -1
		for r, w := range wanted {
			if w > 0 && (best < 0 || big.NewRat(int64(totals[r]+1), int64(w)).Cmp(big.NewRat(int64(totals[best]+1), int64(wanted[best]))) < 0) {
				best = r
			}
		}
		totals[best]++
	}
	return totals
}

func TestAssignPanicsOnTheCallersMistake(t *testing.T) {
	for name, f := range map[string]func(){
		"no ranks": func() { ledger.Assign(nil, nil, 3) },
		"weights":  func() { ledger.Assign(make([]ledger.Set, 2), []int{1}, 3) },
		"negative": func() { ledger.Assign(make([]ledger.Set, 1), nil, -1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestSet(t *testing.T) {
	s := setOf(130, 0, 1, 63, 64, 65, 129)
	if s.Len() != 6 || fmt.Sprint(s.Ranges()) != "[[0 2] [63 66] [129 130]]" || s.Has(2) || !s.Has(64) || s.Has(-1) || s.Has(1000) {
		t.Errorf("set %v of %d", s.Ranges(), s.Len())
	}
	c := s.Clone()
	c.Add(5)
	if s.Has(5) || !slices.Equal(c.Without(s), []int{5}) || !slices.Equal(s.Without(setOf(64, 0, 63)), []int{1, 64, 65, 129}) {
		t.Errorf("clone %v, without %v", c.Ranges(), c.Without(s))
	}
	if len(ledger.NewSet(0)) != 0 || len(ledger.NewSet(64)) != 1 || len(ledger.NewSet(65)) != 2 {
		t.Error("NewSet has another number of words")
	}
}

func ExampleAssign() {
	// Three ranks had four microbatches each; the last rank died. The other ranks keep their microbatches.
	a, b := ledger.NewSet(12), ledger.NewSet(12)
	for k := range 4 {
		a.Add(k)
		b.Add(4 + k)
	}
	shares, _ := ledger.Assign([]ledger.Set{a, b}, nil, 12)
	fmt.Println(shares[0].Ranges(), shares[1].Ranges())
	// Output: [[0 4] [8 10]] [[4 8] [10 12]]
}
