package level_test

import (
	"math"
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer/internal/level"
)

// A small difference is said once, a large one or NaN each time, and none without Keep.
func TestCompare(t *testing.T) {
	var l level.Level
	compare := func(own, others []float32) (string, bool) {
		l.Keep([][]float32{{1, 2}, own})
		own[0] = 100 // a copy was kept
		return l.Compare([][]float32{{1, 2}, others}, func(i int) string { return []string{"a", "b"}[i] }, 7)
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		own, others []float32
		want        string
		large       bool
	}{
		{[]float32{1, 1.5}, []float32{1, 1}, "b differed by 0.35 of its length after step 7", true},
		{[]float32{1, 1 + 1e-6}, []float32{1, 1}, "by 7e-07 after step 7", false},
		{[]float32{1, 1 + 1e-6}, []float32{1, 1}, "", false},
		{[]float32{0, 1}, []float32{0, 0}, "differed by +Inf", true},
		{[]float32{nan, 1}, []float32{1, 1}, "b differed by NaN", true},
		{[]float32{1, 1}, []float32{nan, 1}, "b differed by NaN", true},
		{[]float32{0, 0}, []float32{0, 0}, "", false},
	} {
		if reason, large := compare(c.own, c.others); large != c.large || !strings.Contains(reason, c.want) || c.want == "" && reason != "" {
			t.Errorf("%v and %v: %q, %t, want %q, %t", c.own, c.others, reason, large, c.want, c.large)
		}
	}
	if reason, large := l.Compare(nil, nil, 8); reason != "" || large {
		t.Errorf("without Keep: %q, %t", reason, large)
	}
}
