package launch

import (
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/internal/event"
)

func stepEvent(n int64, loss float64, samples int, of int64) event.Event {
	return event.Event{Step: n, Body: event.Step{Loss: loss, Samples: samples, Of: of}}
}

func TestProgress(t *testing.T) {
	var p progress
	now := time.Unix(1000, 0)
	if got := p.line(now); got != "" {
		t.Errorf("before the first step: %q", got)
	}
	p.observe(stepEvent(1, 2.5, 512, 101), now)
	if got := p.line(now); got != "step 1/101  loss 2.5" {
		t.Errorf("after the first step: %q", got)
	}
	for i := int64(2); i <= 11; i++ { // four peers report each step
		now = now.Add(time.Second)
		for range 4 {
			p.observe(stepEvent(i, 1.25, 512, 101), now)
		}
	}
	if got := p.line(now); got != "step 11/101  loss 1.25  512 samples/s  1m30s left" {
		t.Errorf("after ten more: %q", got)
	}
	p.observe(event.Event{Body: event.View{}}, now)
	p.observe(stepEvent(3, 9, 512, 101), now)
	if got := p.line(now); !strings.HasPrefix(got, "step 11/101  loss 1.25") {
		t.Errorf("an old step changed the line: %q", got)
	}
}

// Shares are told where they differ.
func TestProgressShares(t *testing.T) {
	var p progress
	p.observe(stepEvent(1, 2.5, 512, 101), time.Unix(1000, 0))
	for _, c := range []struct {
		shares []int
		want   string
	}{
		{[]int{8, 8, 7}, "step 1/101  loss 2.5"},
		{[]int{10, 10, 3}, "step 1/101  loss 2.5  shares 3-10"},
		{[]int{}, "step 1/101  loss 2.5"},
	} {
		p.observe(event.Event{Step: 2, Body: event.Shares{New: c.shares}}, time.Unix(1001, 0))
		if got := p.line(time.Unix(1001, 0)); got != c.want {
			t.Errorf("shares %v: %q, want %q", c.shares, got, c.want)
		}
	}
}

// The speed is that of the last seconds, and the memory bounded.
func TestProgressWindow(t *testing.T) {
	var p progress
	now := time.Unix(0, 0)
	for i := int64(1); i <= 20000; i++ {
		per := 10 * time.Millisecond
		if i > 10000 {
			per = 5 * time.Millisecond
		}
		now = now.Add(per)
		p.observe(stepEvent(i, 1, 10, 0), now)
	}
	if got := p.line(now); !strings.Contains(got, " 2000 samples/s") || strings.Contains(got, "left") {
		t.Errorf("got %q, want the later speed and no time left", got)
	}
	if limit := int(progressWindow/progressSpacing) + 3; len(p.marks) > limit {
		t.Errorf("%d marks, at most %d", len(p.marks), limit)
	}
}

func TestStalls(t *testing.T) {
	var s stalls
	now := time.Unix(0, 0)
	who := func(ids string) string { return "<" + ids + ">" }
	e := event.Stall{Culprit: "abc", Phase: "reduce", What: "allreduce", SinceMS: 3200}
	if got := s.line(2, e, now, who); got != "peer 2 has waited 3.2 s for <abc> in allreduce" {
		t.Errorf("got %q", got)
	}
	if got := s.line(1, e, now.Add(time.Second), who); got != "" {
		t.Errorf("the same stall again at once: %q", got)
	}
	if got := s.line(1, e, now.Add(stallPause), who); got == "" {
		t.Error("the same stall after the pause is not told")
	}
	e.Culprit = "def"
	if got := s.line(1, e, now.Add(stallPause), who); !strings.Contains(got, "<def>") {
		t.Errorf("another culprit is not told: %q", got)
	}
	e.What = ""
	e.Culprit = "x"
	if got := s.line(1, e, now, who); !strings.HasSuffix(got, "in reduce") {
		t.Errorf("without a call: %q", got)
	}
}
