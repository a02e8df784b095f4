package loadbal_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/elrun/elrun/loadbal"
	"pgregory.net/rapid"
)

func TestEqualTable(t *testing.T) {
	tests := []struct {
		microbatches, n int
		want            []int
	}{
		{0, 1, []int{0}},
		{0, 3, []int{0, 0, 0}},
		{1, 3, []int{1, 0, 0}},
		{32, 1, []int{32}},
		{32, 4, []int{8, 8, 8, 8}},
		{32, 3, []int{11, 11, 10}},
		{2, 5, []int{1, 1, 0, 0, 0}},
	}
	for _, tt := range tests {
		if got := loadbal.Equal(tt.microbatches, tt.n); !slices.Equal(got, tt.want) {
			t.Errorf("Equal(%d, %d) = %v, want %v", tt.microbatches, tt.n, got, tt.want)
		}
	}
}

// dealt is the twin of Equal: microbatches are dealt like cards.
func dealt(microbatches, n int) []int {
	shares := make([]int, n)
	for k := range microbatches {
		shares[k%n]++
	}
	return shares
}

func TestEqualDealsAndCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		microbatches, n := rapid.IntRange(0, 500).Draw(t, "microbatches"), rapid.IntRange(1, 40).Draw(t, "n")
		shares := loadbal.Equal(microbatches, n)
		if want := dealt(microbatches, n); !slices.Equal(shares, want) {
			t.Fatalf("Equal = %v, dealt one by one %v", shares, want)
		}
		next := 0
		for r := range n {
			first, end := loadbal.Range(shares, r)
			if first != next || end != first+shares[r] {
				t.Fatalf("rank %d has [%d, %d), want it to start at %d with %d", r, first, end, next, shares[r])
			}
			next = end
		}
		if next != microbatches {
			t.Fatalf("ranges end at %d of %d microbatches", next, microbatches)
		}
	})
}

func TestEqualPanicsOnTheCallersMistake(t *testing.T) {
	for _, bad := range [][2]int{{1, 0}, {-1, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Equal(%d, %d) did not panic", bad[0], bad[1])
				}
			}()
			loadbal.Equal(bad[0], bad[1])
		}()
	}
}

func ExampleRange() {
	shares := loadbal.Equal(32, 3)
	first, end := loadbal.Range(shares, 1)
	fmt.Println(shares, first, end)
	// Output: [11 11 10] 11 22
}
