package collective_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/elrun/elrun/collective"
)

// Dims divides all ranks, in descending order, and no other division has a smaller maximum.
func TestDims(t *testing.T) {
	for n := 1; n <= 200; n++ {
		got, err := collective.Dims(n, 0, 0, 0)
		if err != nil || got[0]*got[1]*got[2] != n || !slices.IsSortedFunc(got, func(a, b int) int { return b - a }) {
			t.Fatalf("%d ranks: %v, %v", n, got, err)
		}
		for a := 1; a < got[0]; a++ {
			for b := 1; b <= a; b++ {
				if n%(a*b) == 0 && n/(a*b) <= a {
					t.Errorf("%d ranks: %v, but %d x %d x %d is smaller", n, got, a, b, n/(a*b))
				}
			}
		}
	}
}

func TestDimsThatAreGiven(t *testing.T) {
	for _, test := range []struct {
		n          int
		dims, want []int
	}{
		{6, []int{0, 2}, []int{3, 2}},
		{6, []int{3, 2}, []int{3, 2}},
		{1, nil, []int{}},
		{12, []int{0, 3, 0}, []int{2, 3, 2}},
		{7, []int{0, 2}, nil},
		{7, []int{7, 2}, nil},
		{12, []int{2, 3}, nil},
		{2, nil, nil},
		{0, []int{0}, nil},
		{4, []int{-2, -2}, nil},
	} {
		got, err := collective.Dims(test.n, test.dims...)
		if (err == nil) != (test.want != nil) || err != nil && !errors.Is(err, collective.ErrArgument) || !slices.Equal(got, test.want) {
			t.Errorf("%d among %v: %v, %v, want %v", test.n, test.dims, got, err, test.want)
		}
	}
}

// Coordinates and ranks are inverse, and a shift ends at the edge or wraps around.
func TestGrid(t *testing.T) {
	g, err := collective.NewGrid(12, []int{2, 3, 2}, []bool{false, true, false})
	if err != nil {
		t.Fatal(err)
	}
	for rank := range 12 {
		if at := g.Coords(rank); g.Rank(at...) != rank || at[2] != rank%2 || at[0] != rank/6 {
			t.Errorf("rank %d: %v", rank, at)
		}
	}
	none := collective.NoRank
	for _, test := range []struct {
		rank, dim, by int
		want          collective.Peers
	}{
		{0, 0, 1, collective.Peers{To: 6, From: none}},
		{6, 0, 1, collective.Peers{To: none, From: 0}},
		{6, 0, -1, collective.Peers{To: 0, From: none}},
		{4, 1, 1, collective.Peers{To: 0, From: 2}},
		{0, 1, -7, collective.Peers{To: 4, From: 2}},
		{0, 2, 5, collective.Peers{To: none, From: none}},
	} {
		if got := g.Shift(test.rank, test.dim, test.by); got != test.want {
			t.Errorf("shift of %d along %d by %d: %+v, want %+v", test.rank, test.dim, test.by, got, test.want)
		}
	}
	if g.Coords(12) != nil || g.Coords(-1) != nil || fmt.Sprint(g.Dims()) != "[2 3 2]" {
		t.Errorf("%v, %v, %v", g.Coords(12), g.Coords(-1), g.Dims())
	}
	for _, dims := range [][]int{{5}, {0, 12}, {-3, -4}, nil} {
		if _, err := collective.NewGrid(12, dims, nil); !errors.Is(err, collective.ErrArgument) {
			t.Errorf("%v: %v", dims, err)
		}
	}
	if _, err := collective.NewGrid(2, []int{2}, []bool{true, true}); !errors.Is(err, collective.ErrArgument) {
		t.Errorf("two periods: %v", err)
	}
}
