package trainer

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// A pace is within a fifteenth of the cost that it stands for, and greater costs have
// greater paces.
func TestPaceOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.Int64Range(1, 15<<30).Draw(t, "cost")
		p := paceOf(cost)
		if d := math.Abs(float64(p.cost() - max(cost, 8))); d*15 > float64(max(cost, 8)) {
			t.Fatalf("cost %d has pace %d, which stands for %d", cost, p, p.cost())
		}
		if q := paceOf(rapid.Int64Range(cost, 15<<30).Draw(t, "more")); q < p {
			t.Fatalf("a greater cost has the pace %d, below %d", q, p)
		}
	})
}

// All paces but the first and the unused last ones are those of their costs.
func TestPaces(t *testing.T) {
	for p := pace(1); p <= mostPace; p++ {
		if got := paceOf(p.cost()); got != p {
			t.Errorf("pace %d stands for %d, which has pace %d", p, p.cost(), got)
		}
	}
	if paceOf(math.MaxInt64) != mostPace || paceOf(0) != 1 || pace(0).cost() != 0 {
		t.Error("limits")
	}
	for _, test := range []struct {
		p, q pace
		want bool
	}{{0, 0, false}, {0, 1, true}, {1, 0, true}, {5, 5, false}, {5, 6, false}, {6, 5, false}, {5, 7, true}, {7, 5, true}} {
		if test.p.differs(test.q) != test.want {
			t.Errorf("%d and %d: %t", test.p, test.q, !test.want)
		}
	}
}

// News of up to four links come out as they were put in.
func TestNews(t *testing.T) {
	type item struct {
		From int
		Pace pace
	}
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) item {
			return item{rapid.IntRange(0, 1<<20).Draw(t, "from"), pace(rapid.Byte().Draw(t, "pace"))}
		}), 0, newsMost).Draw(t, "items")
		var n news
		for i, x := range items {
			n.put(i, x.From, x.Pace)
		}
		var got []item
		n.each(func(from int, p pace) { got = append(got, item{from, p}) })
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
