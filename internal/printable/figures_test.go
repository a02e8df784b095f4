package printable

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func FuzzCut(f *testing.F) {
	f.Add("step 3/10  loss 0.5", 10)
	f.Add("\xff\u7a7a", 2)
	f.Add("▁█", 1)
	f.Fuzz(func(t *testing.T, line string, most int) {
		if most < 0 {
			return
		}
		cut := Cut(line, most)
		if !strings.HasPrefix(line, cut) || Columns(cut) > most || cut != line && utf8.RuneCountInString(cut) < most/2-1 {
			t.Errorf("%q cut to %d: %q", line, most, cut)
		}
	})
}

// A bar has its width, and a sparkline at most, whatever the values.
func TestWidths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.Float64()).Draw(t, "values")
		width, ascii := rapid.IntRange(0, 50).Draw(t, "width"), rapid.Bool().Draw(t, "ascii")
		if got := Spark(values, width, rapid.Bool().Draw(t, "zero"), ascii); Columns(got) != min(width, len(values)) || ascii && len(got) != Columns(got) {
			t.Fatalf("sparkline %q", got)
		}
		if got := Bar(rapid.Float64().Draw(t, "part"), width); Columns(got) != max(width, 2) {
			t.Fatalf("bar %q", got)
		}
	})
	if got := Spark([]float64{1, 2, 3, 4}, 4, false, false) + Spark([]float64{1, math.NaN()}, 4, false, true) + Bar(0.5, 6); got != "▁▃▆█__[==--]" {
		t.Errorf("got %q", got)
	}
}
