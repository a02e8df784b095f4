package timeline

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
)

const (
	progressWindow  = 10 * time.Second       // the speed is measured over this time
	progressSpacing = 200 * time.Millisecond // minimum time between two marks
	// maxLeft is the longest remaining time that is shown. A longer time means a job without a real
	// end, or a job that has hardly begun.
	maxLeft = 1000 * time.Hour
)

// Pace follows the steps of a job and makes its progress line. It does no I/O, reads no clock,
// and is not safe for concurrent use.
type Pace struct {
	// Step is the latest step of the job, and of the number of its steps; 0 if unknown.
	Step, Of int64
	// Loss is the loss of the latest step; 0 if unknown.
	Loss float64
	// Metrics has the latest value of each name of elastic.Turn.Report. It is replaced, never
	// changed, so that a reader may keep it.
	Metrics map[string]float64
	samples int64     // sum over the observed steps
	seen    time.Time // time of the latest step
	marks   []mark    // oldest first; at least one after the first step
	shares  []int     // microbatches by rank
	stalled bool      // a peer has held up the others since the latest step
	waits   bool      // the job waits for a quorum, or the peers wait to join again
}

// mark is a past point for the measurement of speeds.
type mark struct {
	at      time.Time
	step    int64
	samples int64
}

// Observe handles an event of any peer, which arrived at now. All peers report the same steps;
// only the first report of each step counts.
func (p *Pace) Observe(e event.Event, now time.Time) {
	switch b := e.Body.(type) {
	case event.Shares:
		p.shares = b.New
	case event.Quorum:
		p.waits = p.waits || b.State != "back" // the next step resets it
	case event.Stall:
		p.stalled = true
	case event.Parked:
		p.waits = true // a step of other peers of this launcher resets it
	case event.Step:
		p.advance(e.Step, b, now)
	case event.Leave: // of fast steps only some have an event
		p.Step = max(p.Step, e.Step)
	}
}

// Position returns the latest step, as in " at step 3 of 10", or "" before the first step.
func (p *Pace) Position() string {
	switch {
	case p.Step == 0:
		return ""
	case p.Of == 0:
		return fmt.Sprintf(" at step %d", p.Step)
	}
	return fmt.Sprintf(" at step %d of %d", p.Step, p.Of)
}

// advance records a report of step n.
func (p *Pace) advance(n int64, s event.Step, now time.Time) {
	if n <= p.Step {
		return
	}
	if p.waits && now.Sub(p.seen) > progressWindow { // the speed is not measured across a long pause
		p.marks = nil
	}
	p.waits, p.stalled = false, false
	if p.Step > 0 { // the first step of a resumed job may not be step 1
		p.samples += int64(s.Samples) * (n - p.Step)
	}
	p.Step, p.Loss, p.seen, p.Metrics = n, s.Loss, now, latestMetrics(p.Metrics, s.Metrics)
	if s.Of > 0 {
		p.Of = s.Of
	}
	if n := len(p.marks); n > 0 && now.Sub(p.marks[n-1].at) < progressSpacing {
		return
	}
	p.marks = append(p.marks, mark{now, p.Step, p.samples})
	for len(p.marks) > 2 && now.Sub(p.marks[1].at) > progressWindow {
		p.marks = p.marks[1:]
	}
}

// maxMetrics bounds the number of names that a program may have reported. A program that makes new
// names all the time has only those of the latest step.
const maxMetrics = 64

// latestMetrics returns the values of before and of a further step.
func latestMetrics(before, step map[string]float64) map[string]float64 {
	if len(step) == 0 {
		return before
	}
	all := make(map[string]float64)
	maps.Copy(all, before)
	maps.Copy(all, step)
	if len(all) > maxMetrics {
		return step
	}
	return all
}

// Line returns the progress line at now, without a line end. It is "" before the first step and
// while the job waits.
func (p *Pace) Line(now time.Time) string {
	if p.Step == 0 || p.waits {
		return ""
	}
	s := fmt.Sprintf("step %d", p.Step)
	if p.Of > 0 {
		s += fmt.Sprintf("/%d", p.Of)
	}
	if p.Loss != 0 { // unknown in a user's own loop
		s += fmt.Sprintf("  loss %.4g", p.Loss)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Metrics)) {
		s += fmt.Sprintf("  %s %.4g", name, p.Metrics[name])
	}
	// Equal shares, up to one left-over microbatch, are not shown.
	if n := len(p.shares); n > 0 && slices.Max(p.shares) > slices.Min(p.shares)+1 {
		s += fmt.Sprintf("  shares %d-%d", slices.Min(p.shares), slices.Max(p.shares))
	}
	samples, steps, left := p.Speed(now)
	if samples > 0 {
		s += fmt.Sprintf("  %.0f samples/s", samples)
	} else if steps > 0 {
		s += fmt.Sprintf("  %.1f steps/s", steps)
	}
	if left > 0 {
		s += fmt.Sprintf("  %v left", left.Round(time.Second))
	}
	return s
}

// Speed returns the speed up to now in samples and in steps a second, and the remaining time of the
// job; 0 for what is not known.
func (p *Pace) Speed(now time.Time) (samples, steps float64, left time.Duration) {
	if len(p.marks) == 0 {
		return 0, 0, 0
	}
	// During a pause of the job the speed falls, as intended. After the last step it does not change
	// any more.
	if p.Of > 0 && p.Step >= p.Of {
		now = p.seen
	}
	first := p.marks[0]
	elapsed := now.Sub(first.at).Seconds()
	if p.Step == first.step || elapsed <= 0 {
		return 0, 0, 0
	}
	samples, steps = float64(p.samples-first.samples)/elapsed, float64(p.Step-first.step)/elapsed
	if p.stalled {
		return samples, steps, 0 // nobody knows how long the others will be held up
	}
	// The remaining time is computed in seconds as a float, because the number of steps may be too
	// large for a Duration.
	if rest := float64(p.Of-p.Step) / steps; rest > 0 && rest <= maxLeft.Seconds() {
		left = time.Duration(rest * float64(time.Second))
	}
	return samples, steps, left
}
