package loadbal

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A medianFilter ignores outliers, and follows lasting changes.
func TestMedianFilter(t *testing.T) {
	tests := []struct {
		name   string
		values []int64
		want   int64
		jumps  int
	}{
		{"nothing", nil, 0, 0},
		{"one", []int64{7}, 7, 0},
		{"an outlier", []int64{100, 101, 900, 99, 100}, 100, 0},
		{"a change", []int64{100, 100, 100, 100, 400, 400}, 400, 1},
		{"there and back", []int64{100, 100, 100, 50, 50, 50, 100, 100}, 100, 2},
		{"outliers on both sides", []int64{100, 100, 900, 10, 100}, 100, 0},
	}
	for _, tt := range tests {
		m, jumps := medianFilter{}, 0
		for _, v := range tt.values {
			if m.Add(v) {
				jumps++
			}
		}
		if m.Value() != tt.want || jumps != tt.jumps {
			t.Errorf("%s: %d after %d changes, want %d after %d", tt.name, m.Value(), jumps, tt.want, tt.jumps)
		}
	}
}

// Without noise, a few changes of the share determine the fixed part. Only the prior keeps the estimate below the true value.
func TestFixedPartIsLearned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fixed, each := rapid.Int64Range(0, 200).Draw(t, "fixed"), rapid.Int64Range(1000, 1<<24).Draw(t, "each")
		var f fixedPart
		b := 64
		for range 6 {
			f.observe(b, (int64(b)+fixed)*each, 0)
			b = 160 - b // alternates between 64 and 96
		}
		// The prior pulls the estimate towards 0.
		if got := f.parts / fixedUnit; got > fixed || got < fixed*5/8 {
			t.Fatalf("%d microbatches, want about %d", got, fixed)
		}
	})
}

// A jump of the speed between two steps is not mistaken for a fixed part. Steps with equal shares do not change the estimate.
func TestFixedPartKeepsOutJumps(t *testing.T) {
	var f fixedPart
	for _, m := range []struct {
		share int
		ticks int64
	}{{32, 32e6}, {32, 64e6}, {32, 32e6}, {20, 80e6}, {40, 8e6}} {
		f.observe(m.share, m.ticks, 0)
	}
	if f.parts != 0 || f.num != 0 {
		t.Errorf("learned %d from %d/%d", f.parts, f.num, f.den)
	}
}

// paceOf returns a pace with deterministic noise of up to 2 %, as input for forecasters.
func paceOf(level int64, step int) int64 { return level + level*int64(step*7919%41-20)/1000 }

// adaptiveEWMA averages noise: the level stays within 1.5 % of the true pace, and no jump is
// reported.
func TestSmootherAveragesNoise(t *testing.T) {
	s := newAdaptiveEWMA(0)
	for step := range 200 {
		if s.observe(paceOf(1_000_000, step), 0) {
			t.Fatalf("step %d: a jump at %d", step, s.smoothed)
		}
		if step > 20 && abs(s.smoothed-1_000_000) > 15_000 {
			t.Fatalf("step %d: %d", step, s.smoothed)
		}
	}
}

// adaptiveEWMA accepts a jump to a slower pace at once, and a jump to a faster pace at the second
// step. A single faster step counts as an outlier.
func TestSmootherBelievesTheWorse(t *testing.T) {
	s := newAdaptiveEWMA(1000)
	for i, tt := range []struct {
		pace, want int64
		jump       bool
	}{{1000, 1000, false}, {400, 1000, false}, {1000, 1000, false}, {4000, 4000, true}, {4000, 4000, false}, {1000, 4000, false}, {1010, 1010, true}} {
		if jump := s.observe(tt.pace, 0); jump != tt.jump || s.smoothed != tt.want {
			t.Fatalf("value %d: level %d, jump %t; want %d, %t", i, s.smoothed, jump, tt.want, tt.jump)
		}
	}
}

// The level follows a steady drift, because errors of the same sign raise the gain.
func TestSmootherFollowsADrift(t *testing.T) {
	s, pace := newAdaptiveEWMA(1_000_000), int64(1_000_000)
	for step := range 60 {
		pace += pace / 50
		s.observe(pace, 0)
		if step > 5 && !near(s.smoothed, pace, unit/12) {
			t.Fatalf("step %d: %d behind %d", step, s.smoothed, pace)
		}
	}
}

// After two periods the periodic forecaster and narx predict every jump. The EWMA predicts none.
func TestPeriodicForecastExpectsJumps(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ahead  forecaster
		lowest int
		most   int
	}{{"season", new(periodic), 0, 0}, {"narx", new(narx), 0, 0}, {"plain", new(plain), 20, 100}} {
		tt.ahead.begin([]int64{0})
		misses := 0
		for step := range 500 {
			level := int64(1_000_000)
			if step%37 < 12 {
				level *= 2
			}
			pace := paceOf(level, step)
			if step > 120 && !near(max(1, tt.ahead.next()[0]), pace, unit/8) {
				misses++
			}
			tt.ahead.observe([]int64{pace})
		}
		if misses < tt.lowest || misses > tt.most {
			t.Errorf("%s: %d misses, want %d to %d", tt.name, misses, tt.lowest, tt.most)
		}
	}
}

// Random jumps have no period, so the periodic forecaster finds none.
func TestRandomJumpsHaveNoPeriod(t *testing.T) {
	var h history
	seed := uint64(1)
	for step := range 400 {
		seed = seed*6364136223846793005 + 1442695040888963407
		h.record(1000+int64(seed>>60)*200, unit/16)
		if h.lag != 0 {
			t.Fatalf("step %d: a period of %d", step, h.lag)
		}
	}
}

// For any paces, forecasts are not negative, and two forecasters with equal inputs have equal
// forecasts.
func TestForecastersOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.SliceOfN(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<44)), 3, 3), 1, 30).Draw(t, "paces")
		for _, pair := range [][2]forecaster{{new(plain), new(plain)}, {new(periodic), new(periodic)}, {new(narx), new(narx)}} {
			pair[0].begin(rows[0])
			pair[1].begin(rows[0])
			for _, row := range rows {
				pair[0].observe(row)
				pair[1].observe(row)
				a, b := pair[0].next(), pair[1].next()
				if !slices.Equal(a, b) || slices.Min(a) < 0 {
					t.Fatalf("%T: %v and %v", pair[0], a, b)
				}
			}
		}
	})
}
