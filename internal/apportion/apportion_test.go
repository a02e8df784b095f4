package apportion

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// dealt is the slow reference implementation of Fill: it assigns the units one by one.
func dealt(totals, weights []int, free int) []int {
	more := make([]int, len(totals))
	for range free {
		best := -1
		for i, w := range weights {
			if w > 0 && (best < 0 || (totals[i]+more[i]+1)*weights[best] < (totals[best]+more[best]+1)*w) {
				best = i
			}
		}
		more[best]++
	}
	return more
}

// Fill has the same result as dealt.
func TestFillIsDealing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "n")
		totals := rapid.SliceOfN(rapid.IntRange(0, 50), n, n).Draw(t, "totals")
		weights := rapid.SliceOfN(rapid.IntRange(0, 30), n, n).Draw(t, "weights")
		weights[rapid.IntRange(0, n-1).Draw(t, "sure")]++
		free := rapid.IntRange(0, 200).Draw(t, "free")
		if got, want := Fill(totals, weights, free), dealt(totals, weights, free); !slices.Equal(got, want) {
			t.Fatalf("Fill(%v, %v, %d) = %v, want %v", totals, weights, free, got, want)
		}
	})
}

// Fill panics on impossible arguments.
func TestFillPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"none":           func() { Fill(nil, nil, 1) },
		"no weights":     func() { Fill([]int{1}, nil, 1) },
		"weights of 0":   func() { Fill([]int{1, 2}, []int{0, 0}, 1) },
		"less than none": func() { Fill([]int{1}, []int{1}, -1) },
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
