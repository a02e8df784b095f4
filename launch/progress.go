package launch

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
)

const (
	progressWindow  = 10 * time.Second       // over which the speed is measured
	progressSpacing = 200 * time.Millisecond // least time between two marks
	// mostLeft is the longest remaining time that is told. A longer one is of a job without
	// a real end, or of one that has hardly begun.
	mostLeft = 1000 * time.Hour
)

// progress follows the steps of a job and words its progress line. It is pure and
// not safe for concurrent use.
type progress struct {
	step, of int64
	loss     float64
	samples  int64     // sum over the steps seen
	seen     time.Time // of the latest step
	marks    []mark
	shares   []int // of the ranks, in microbatches
	waits    bool  // for a quorum, or for being let in again
}

// mark is a point of the past from which speeds are measured.
type mark struct {
	at      time.Time
	step    int64
	samples int64
}

// observe takes an event of any peer, at local time now. All peers report the same
// steps; only the first report of each counts.
func (p *progress) observe(e event.Event, now time.Time) {
	switch b := e.Body.(type) {
	case event.Shares:
		p.shares = b.New
	case event.Quorum:
		p.waits = p.waits || b.State != "back" // the next step shows that they go on
	case event.Parked:
		p.waits = true // unless other peers of this launcher go on, as their next step shows
	case event.Step:
		p.advance(e.Step, b, now)
	}
}

// advance takes a report of step n.
func (p *progress) advance(n int64, s event.Step, now time.Time) {
	if n <= p.step {
		return
	}
	if p.waits && now.Sub(p.seen) > progressWindow { // a long pause is no measure of the speed
		p.marks = nil
	}
	p.waits = false
	if p.step > 0 { // a resumed job's first step is not its first samples
		p.samples += int64(s.Samples) * (n - p.step)
	}
	p.step, p.loss, p.seen = n, s.Loss, now
	if s.Of > 0 {
		p.of = s.Of
	}
	if n := len(p.marks); n > 0 && now.Sub(p.marks[n-1].at) < progressSpacing {
		return
	}
	p.marks = append(p.marks, mark{now, p.step, p.samples})
	for len(p.marks) > 2 && now.Sub(p.marks[1].at) > progressWindow {
		p.marks = p.marks[1:]
	}
}

// line words the state at now, without a line end; "" before the first step, and while the
// job waits.
func (p *progress) line(now time.Time) string {
	if p.step == 0 || p.waits {
		return ""
	}
	s := fmt.Sprintf("step %d", p.step)
	if p.of > 0 {
		s += fmt.Sprintf("/%d", p.of)
	}
	if p.loss != 0 { // of a loop of the user's own it is not known
		s += fmt.Sprintf("  loss %.4g", p.loss)
	}
	// Equal shares, but for one microbatch that is left over, are nothing to tell.
	if n := len(p.shares); n > 0 && slices.Max(p.shares) > slices.Min(p.shares)+1 {
		s += fmt.Sprintf("  shares %d-%d", slices.Min(p.shares), slices.Max(p.shares))
	}
	// During a pause of the job the speed shown falls, as it should; after its last step
	// there is nothing to wait for.
	if p.of > 0 && p.step >= p.of {
		now = p.seen
	}
	first := p.marks[0]
	elapsed := now.Sub(first.at).Seconds()
	if p.step == first.step || elapsed <= 0 {
		return s
	}
	if samples := p.samples - first.samples; samples > 0 {
		s += fmt.Sprintf("  %.0f samples/s", float64(samples)/elapsed)
	} else {
		s += fmt.Sprintf("  %.1f steps/s", float64(p.step-first.step)/elapsed)
	}
	// In seconds and as a float: a job may have any number of steps.
	if left := elapsed / float64(p.step-first.step) * float64(p.of-p.step); left > 0 && left <= mostLeft.Seconds() {
		s += fmt.Sprintf("  %v left", time.Duration(left*float64(time.Second)).Round(time.Second))
	}
	return s
}
