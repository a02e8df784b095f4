package say

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/spec"
)

// trained returns the pace and the line of a job after some steps, and when that is.
func trained(steps, of int64) (p spec.Pace, l liveLine, now time.Time) {
	now = time.Unix(1000, 0)
	for n := int64(1); n <= steps; n++ {
		now = now.Add(time.Second)
		p.Observe(stepEvent(n, 1/float64(n), 512, of), now)
		l.observe(&p)
	}
	return p, l, now
}

func TestLiveLine(t *testing.T) {
	for _, c := range []struct {
		of    int64
		width int
		ascii bool
		want  string
	}{
		{100, 120, false, "[=======-----------]  step 40/100  loss 0.025 █▃▂▁▁▁▁▁▁▁▁▁▁▁▁▁  512 samples/s  1m0s left"},
		{100, 80, false, "[===-----]  step 40/100  loss 0.025 █▃▂▁▁▁▁▁▁▁▁▁▁▁▁▁  512 samples/s  1m0s left"},
		{100, 120, true, "[=======-----------]  step 40/100  loss 0.025 #-._____________  512 samples/s  1m0s left"},
		{100, 60, false, "step 40/100  loss 0.025 █▂▁▁▁▁▁▁  512 samples/s  1m0s left"},
		{100, 40, false, "step 40/100  loss 0.025  1m0s left"},
		{100, 24, false, "step 40/100  1m0s left"},
		{100, 0, false, "step 40/100  loss 0.025  512 samples/s  1m0s left"},
		{0, 120, false, "step 40  loss 0.025 █▃▂▁▁▁▁▁▁▁▁▁▁▁▁▁  512 samples/s"},
	} {
		p, l, now := trained(40, c.of)
		if got := l.draw(p.Line(now), &p, c.width, c.ascii); got != c.want {
			t.Errorf("%d steps, %d columns: got\n%s, want\n%s", c.of, c.width, got, c.want)
		}
	}
}

// The line is never wider than the terminal, whatever the job reports, and its values are bounded.
func TestLiveLineFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p spec.Pace
		var l liveLine
		now, of := time.Unix(1000, 0), rapid.Int64Min(0).Draw(t, "of")
		names := rapid.SliceOfN(rapid.StringN(0, 12, -1), 0, 3).Draw(t, "names")
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1e10).Draw(t, "pause")))
			s := event.Step{Loss: rapid.Float64().Draw(t, "loss"), Samples: 3, Of: of, Metrics: make(map[string]float64)}
			for _, name := range names {
				s.Metrics[name] = s.Loss
			}
			p.Observe(event.Event{Step: p.Step + rapid.Int64Range(0, 1e9).Draw(t, "step"), Body: s}, now)
			l.observe(&p)
		}
		width := rapid.IntRange(1, 200).Draw(t, "width")
		line := printable.Cut(l.draw(p.Line(now), &p, width, false), width-1) // as the printer cuts it
		if printable.Columns(line) >= width || len(l.losses) >= maxLosses {
			t.Fatalf("%d columns, %d values: %q", width, len(l.losses), line)
		}
		if bar := strings.HasPrefix(line, "["); bar && of == 0 {
			t.Fatalf("a bar without a length: %q", line)
		}
	})
}

// The sparkline is that of all steps, however many there were.
func TestLiveLineLosses(t *testing.T) {
	for steps := int64(2); steps < 2000; steps = steps*3/2 + 1 {
		_, l, _ := trained(steps, 0)
		if n := len(l.losses); n < min(int(steps), maxLosses/2) || l.per*n > int(steps) || l.per*(n+1) <= int(steps) {
			t.Errorf("%d steps: %d values of %d steps each", steps, n, l.per)
		}
		if got := printable.Spark(l.losses, 8, false, false); !strings.HasPrefix(got, "█") || !strings.HasSuffix(got, "▁") {
			t.Errorf("%d steps: %s", steps, got)
		}
	}
}
