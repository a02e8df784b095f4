package loadbal

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// judged returns a forecastScore after several equal steps of two ranks. The argument eager holds the shares by the forecast,
// and calm the shares by the means.
func judged(steps int, eager, calm []int, paces []int64) *forecastScore {
	t := new(forecastScore)
	t.begin(2)
	for range steps {
		t.forecastShares, t.meanShares = eager, calm
		t.observe(paces, make([]fixedPart, 2))
	}
	return t
}

// The forecast is used unless it was worse than the means. After a jump it is used unless it was clearly worse.
func TestScoreFollowsTheBetterForecast(t *testing.T) {
	even, uneven, paces := []int{16, 16}, []int{24, 8}, []int64{1000, 1000}
	tests := []struct {
		name          string
		judged        *forecastScore
		quiet, jumped bool
	}{
		{"nothing seen", judged(0, even, even, paces), true, true},
		{"both the same", judged(20, even, even, paces), true, true},
		{"the forecast is right", judged(20, even, uneven, paces), true, true},
		{"it is a little wrong", judged(20, []int{17, 16}, even, paces), false, false},
		{"it was wrong once by a little", judged(1, []int{17, 16}, even, paces), false, true},
		{"it is wrong", judged(20, uneven, even, paces), false, false},
	}
	for _, tt := range tests {
		if quiet, jumped := tt.judged.followForecast(false), tt.judged.followForecast(true); quiet != tt.quiet || jumped != tt.jumped {
			t.Errorf("%s: %t and after a jump %t, want %t and %t", tt.name, quiet, jumped, tt.quiet, tt.jumped)
		}
	}
}

// A few good steps are enough for a forecast to be used again, however long it was worse before.
func TestScoreRecovers(t *testing.T) {
	even, uneven := []int{16, 16}, []int{30, 2}
	tr := judged(1000, uneven, even, []int64{1000, 1000})
	for step := 1; !tr.followForecast(false); step++ {
		if step > 5 {
			t.Fatalf("not after %d steps: %d", step, tr.advantage)
		}
		tr.forecastShares, tr.meanShares = uneven, even
		tr.observe([]int64{1000, 15_000}, make([]fixedPart, 2))
	}
}

// The first values have equal weight in the mean. The error of an outlier is limited to the mean.
func TestScoreMeans(t *testing.T) {
	tr := judged(0, nil, nil, nil)
	for _, paces := range [][]int64{{1000, 0}, {2000, 5000}, {3000, 0}} {
		tr.observe(paces, make([]fixedPart, 2))
	}
	if !near(tr.means[0], 2000, unit/100) || tr.means[1] != 5000 {
		t.Errorf("means %v", tr.means)
	}
	for range meanSteps {
		tr.observe([]int64{2000, 5000}, make([]fixedPart, 2))
	}
	if tr.observe([]int64{1 << 40, 5000}, make([]fixedPart, 2)); tr.means[0] > 2000*66/64 {
		t.Errorf("mean after an outlier %d", tr.means[0])
	}
}

// Ranks whose means differ by no more than the noise get equal paces. The noise of a mean shrinks with the number of recorded
// steps.
func TestCalmedDoesNotSplitHairs(t *testing.T) {
	tr := judged(0, nil, nil, nil)
	tr.begin(3)
	for step := range meanSteps {
		tr.observe([]int64{990_000, 1_000_000, 4_000_000}, make([]fixedPart, 3))
		got := tr.shrunkMeans(unit / 20)
		if got[1] != 1_000_000 || step < 30 && got[0] != 1_000_000 || got[2] > 4_000_000 || got[2] < 3_800_000 {
			t.Fatalf("step %d: %v", step, got)
		}
	}
	if got := tr.shrunkMeans(unit / 500); !near(got[0], 990_000, unit/500) {
		t.Errorf("little noise: %v", got)
	}
}

// shrinkToward moves a pace towards the middle by a limited ratio, and never beyond the middle.
func TestShrinkToward(t *testing.T) {
	for _, tt := range []struct{ pace, middle, by, want int64 }{
		{1000, 1000, 0, 1000},
		{1050, 1000, unit / 10, 1000},
		{950, 1000, unit / 10, 1000},
		{2000, 1000, unit / 2, 1500},
		{1000, 2000, unit / 2, 1333},
		{1_000_000, 1000, unit / 2, 1_000_000},
	} {
		if got := shrinkToward(tt.pace, tt.middle, tt.by); got != tt.want {
			t.Errorf("toward(%d, %d, %d) = %d, want %d", tt.pace, tt.middle, tt.by, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		pace, middle := rapid.Int64Range(1, 1<<43).Draw(t, "pace"), rapid.Int64Range(1, 1<<43).Draw(t, "middle")
		got := shrinkToward(pace, middle, rapid.Int64Range(0, 2*unit).Draw(t, "by"))
		// Rounding and the limit of quotient make the result inexact by up to 1 %.
		if low, high := min(pace, middle), max(pace, middle); got < low-low/100-1 || got > high+high/100 {
			t.Fatalf("%d is not between %d and %d", got, pace, middle)
		}
	})
}

// The mean of a rank without a measurement is 0.
func TestCalmedOfNothing(t *testing.T) {
	tr := judged(0, nil, nil, nil)
	if got := tr.shrunkMeans(unit); !slices.Equal(got, []int64{0, 0}) {
		t.Errorf("%v", got)
	}
}
