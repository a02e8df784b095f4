package loadbal_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/loadbal"
)

// Costs returns the measured costs in nanoseconds, in a slice that belongs to the caller. Before the first measurement it returns
// nil.
func TestCosts(t *testing.T) {
	for _, name := range loadbal.Names() {
		p := policy(t, name)
		p.Begin([]int64{0, 0})
		if got := p.Costs(); got != nil {
			t.Errorf("%s: costs %v of nothing", name, got)
		}
		shares, _ := p.Next(nil, 20)
		for range 40 {
			reports := []loadbal.Report{{Share: shares[0], Micros: int64(shares[0]) * 1000}, {Share: shares[1], Micros: int64(shares[1]) * 3000, Max: 19}}
			shares, _ = p.Next(reports, 20)
		}
		c := p.Costs()
		if len(c) != 2 || c[0].Max != 0 || c[1].Max != 19 {
			t.Fatalf("%s: costs %v", name, c)
		}
		for r, want := range []int64{1_000_000, 3_000_000} {
			if got := c[r].Time(shares[r]) / int64(shares[r]); got < want*9/10 || got > want*11/10 {
				t.Errorf("%s: rank %d takes %d ns for each of %d microbatches, want %d", name, r, got, shares[r], want)
			}
		}
		c[0].Each = 7
		if p.Costs()[0].Each == 7 {
			t.Errorf("%s: the costs are the policy's own", name)
		}
	}
}

// Pace is the inverse of Speed, up to rounding to whole numbers.
func TestPace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(1, 1<<32).Draw(t, "micros")
		got := loadbal.Pace(loadbal.Speed(1, micros))
		if speed := loadbal.Speed(1, micros); speed > 1 && (got < micros*1000 || got > micros*1000*(speed+1)/speed+1000) {
			t.Fatalf("%d ns for %d us", got, micros)
		}
	})
	if got := loadbal.Pace(1); got < 1 || got > 1<<44 {
		t.Errorf("the slowest takes %d ns", got)
	}
}
