package trainer

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Rounding changes a cost by at most a fifteenth. If one cost is higher than another, its rounded
// cost is not lower.
func TestLinkCostOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.Int64Range(1, 15<<30).Draw(t, "cost")
		p := linkCostOf(cost)
		if d := math.Abs(float64(p.micros() - max(cost, 8))); d*15 > float64(max(cost, 8)) {
			t.Fatalf("cost %d is rounded to %d, which means %d", cost, p, p.micros())
		}
		if q := linkCostOf(rapid.Int64Range(cost, 15<<30).Draw(t, "more")); q < p {
			t.Fatalf("a greater cost is rounded to %d, below %d", q, p)
		}
	})
}

// Every linkCost from 1 to maxLinkCost survives decoding and encoding.
func TestLinkCosts(t *testing.T) {
	for p := linkCost(1); p <= maxLinkCost; p++ {
		if got := linkCostOf(p.micros()); got != p {
			t.Errorf("rounded cost %d means %d, which is rounded to %d", p, p.micros(), got)
		}
	}
	if linkCostOf(math.MaxInt64) != maxLinkCost || linkCostOf(0) != 1 || linkCost(0).micros() != 0 {
		t.Error("limits")
	}
	for _, test := range []struct {
		p, q linkCost
		want bool
	}{{0, 0, false}, {0, 1, true}, {1, 0, true}, {5, 5, false}, {5, 6, false}, {6, 5, false}, {5, 7, true}, {7, 5, true}} {
		if test.p.differs(test.q) != test.want {
			t.Errorf("%d and %d: %t", test.p, test.q, !test.want)
		}
	}
}

// Up to four link updates survive packing and unpacking.
func TestLinkUpdates(t *testing.T) {
	type item struct {
		From int
		Pace linkCost
	}
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) item {
			return item{rapid.IntRange(0, 1<<20).Draw(t, "from"), linkCost(rapid.Byte().Draw(t, "pace"))}
		}), 0, maxLinkUpdates).Draw(t, "items")
		var n linkUpdates
		for i, x := range items {
			n.put(i, x.From, x.Pace)
		}
		var got []item
		n.each(func(from int, p linkCost) { got = append(got, item{from, p}) })
		if len(got) != len(items) {
			t.Fatalf("%d items of %d", len(got), len(items))
		}
		for i := range got {
			if got[i] != items[i] {
				t.Fatalf("item %d is %+v, want %+v", i, got[i], items[i])
			}
		}
	})
}
