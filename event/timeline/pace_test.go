package timeline

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
)

func stepEvent(n int64, loss float64, samples int, of int64) event.Event {
	return event.Event{Step: n, Body: event.Step{Loss: loss, Samples: samples, Of: of}}
}

func TestProgress(t *testing.T) {
	var p Pace
	now := time.Unix(1000, 0)
	if got := p.Line(now); got != "" {
		t.Errorf("before the first step: %q", got)
	}
	p.Observe(stepEvent(1, 2.5, 512, 101), now)
	if got := p.Line(now); got != "step 1/101  loss 2.5" {
		t.Errorf("after the first step: %q", got)
	}
	for i := int64(2); i <= 11; i++ { // four peers report each step
		now = now.Add(time.Second)
		for range 4 {
			p.Observe(stepEvent(i, 1.25, 512, 101), now)
		}
	}
	if got := p.Line(now); got != "step 11/101  loss 1.25  512 samples/s  1m30s left" {
		t.Errorf("after ten more: %q", got)
	}
	p.Observe(event.Event{Body: event.View{}}, now)
	p.Observe(stepEvent(3, 9, 512, 101), now)
	if got := p.Line(now); !strings.HasPrefix(got, "step 11/101  loss 1.25") {
		t.Errorf("an old step changed the line: %q", got)
	}
}

// A user's own loop reports no loss, and perhaps no samples.
func TestProgressOfOwnLoop(t *testing.T) {
	for samples, want := range map[int]string{64: "step 3/5  64 samples/s  2s left", 0: "step 3/5  1.0 steps/s  2s left"} {
		var p Pace
		now := time.Unix(1000, 0)
		for i := range int64(3) {
			now = now.Add(time.Second)
			p.Observe(stepEvent(i+1, 0, samples, 5), now)
		}
		if got := p.Line(now); got != want {
			t.Errorf("%d samples: %q, want %q", samples, got, want)
		}
	}
}

// Values of Turn.Report are shown by name. A value that is not reported in each step stays. A program
// that makes new names all the time needs no more and more memory.
func TestProgressMetrics(t *testing.T) {
	var p Pace
	now := time.Unix(1000, 0)
	for i, m := range []map[string]float64{{"loss": 2, "accuracy": 0.1}, {"loss": 0}, nil} {
		p.Observe(event.Event{Step: int64(i + 1), Body: event.Step{Metrics: m}}, now)
	}
	if got := p.Line(now); got != "step 3  accuracy 0.1  loss 0" {
		t.Errorf("got %q", got)
	}
	for i := range 1000 {
		p.Observe(event.Event{Step: int64(i + 4), Body: event.Step{Metrics: map[string]float64{fmt.Sprint("loss", i): 1}}}, now)
	}
	if n := len(p.Metrics); n > maxMetrics || p.Metrics["loss999"] != 1 {
		t.Errorf("%d names", n)
	}
}

// Shares are shown if they differ.
func TestProgressShares(t *testing.T) {
	var p Pace
	p.Observe(stepEvent(1, 2.5, 512, 101), time.Unix(1000, 0))
	for _, c := range []struct {
		shares []int
		want   string
	}{
		{[]int{8, 8, 7}, "step 1/101  loss 2.5"},
		{[]int{10, 10, 3}, "step 1/101  loss 2.5  shares 3-10"},
		{[]int{}, "step 1/101  loss 2.5"},
	} {
		p.Observe(event.Event{Step: 2, Body: event.Shares{New: c.shares}}, time.Unix(1001, 0))
		if got := p.Line(time.Unix(1001, 0)); got != c.want {
			t.Errorf("shares %v: %q, want %q", c.shares, got, c.want)
		}
	}
}

// The speed is measured over the last seconds, and memory is bounded.
func TestProgressWindow(t *testing.T) {
	var p Pace
	now := time.Unix(0, 0)
	for i := int64(1); i <= 20000; i++ {
		per := 10 * time.Millisecond
		if i > 10000 {
			per = 5 * time.Millisecond
		}
		now = now.Add(per)
		p.Observe(stepEvent(i, 1, 10, 0), now)
	}
	if got := p.Line(now); !strings.Contains(got, " 2000 samples/s") || strings.Contains(got, "left") {
		t.Errorf("got %q, want the later speed and no time left", got)
	}
	if limit := int(progressWindow/progressSpacing) + 3; len(p.marks) > limit {
		t.Errorf("%d marks, at most %d", len(p.marks), limit)
	}
}

// The remaining time is shown if it is known and meaningful.
func TestProgressLeft(t *testing.T) {
	for _, c := range []struct {
		of   int64
		want string // the end of the line
	}{
		{0, "  100 samples/s"},
		{2, "  100 samples/s"},
		{3, "  100 samples/s  1s left"},
		{3602, "  100 samples/s  1h0m0s left"},
		{3600*1000 + 2, "  100 samples/s  1000h0m0s left"},
		{3600*1000 + 3, "  100 samples/s"},
		{1 << 40, "  100 samples/s"},
		{math.MaxInt64, "  100 samples/s"},
	} {
		var p Pace
		p.Observe(stepEvent(1, 1, 100, c.of), time.Unix(1, 0))
		p.Observe(stepEvent(2, 1, 100, c.of), time.Unix(2, 0))
		if got := p.Line(time.Unix(2, 0)); !strings.HasSuffix(got, c.want) {
			t.Errorf("of %d: %q, want %q at its end", c.of, got, c.want)
		}
	}
}

// The line never has a negative number.
func TestProgressNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pace
		now, of := time.Unix(0, 0), rapid.Int64Range(0, math.MaxInt64).Draw(t, "of")
		for range rapid.IntRange(1, 10).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1<<40).Draw(t, "pause")))
			p.Observe(stepEvent(rapid.Int64Range(1, 1<<40).Draw(t, "step"), 1, rapid.IntRange(0, 1<<20).Draw(t, "samples"), of), now)
		}
		if got := p.Line(now); strings.Contains(got, "-") {
			t.Fatalf("got %q", got)
		}
	})
}

// Nothing is shown while the job waits, and the pause does not affect the speed.
func TestProgressWhileWaiting(t *testing.T) {
	for name, body := range map[string]event.Body{
		"too few":   event.Quorum{State: "lost"},
		"waiting":   event.Quorum{State: "waiting"},
		"gave up":   event.Quorum{State: "gave-up"},
		"put aside": event.Parked{Who: "a", Reason: "too slow"},
	} {
		var p Pace
		second := func(n int) time.Time { return time.Unix(int64(n), 0) }
		p.Observe(stepEvent(1, 1, 100, 0), second(1))
		p.Observe(stepEvent(2, 1, 100, 0), second(2))
		p.Observe(event.Event{Body: body}, second(3))
		p.Observe(event.Event{Body: event.Quorum{State: "back"}}, second(60))
		p.Observe(stepEvent(2, 1, 100, 0), second(61)) // a late report
		if got := p.Line(second(61)); got != "" {
			t.Errorf("%s: %q is shown", name, got)
		}
		p.Observe(stepEvent(3, 1, 100, 0), second(62))
		p.Observe(stepEvent(4, 1, 100, 0), second(63))
		if got := p.Line(second(63)); got != "step 4  loss 1  100 samples/s" {
			t.Errorf("%s: afterwards %q", name, got)
		}
	}
}

// If a newcomer is parked, the progress line of the peers that go on does not change.
func TestProgressBesideParked(t *testing.T) {
	var p Pace
	for i := int64(1); i <= 5; i++ {
		p.Observe(stepEvent(i, 1, 100, 0), time.Unix(i, 0))
		p.Observe(event.Event{Body: event.Parked{Who: "newcomer"}}, time.Unix(i, 1))
	}
	p.Observe(stepEvent(6, 1, 100, 0), time.Unix(6, 0))
	if got := p.Line(time.Unix(6, 0)); got != "step 6  loss 1  100 samples/s" {
		t.Errorf("got %q", got)
	}
}
