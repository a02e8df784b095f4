package launch

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/internal/event"
)

const (
	progressWindow  = 10 * time.Second       // over which the speed is measured
	progressSpacing = 200 * time.Millisecond // least time between two marks
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
	if b, ok := e.Body.(event.Shares); ok {
		p.shares = b.New
		return
	}
	s, ok := e.Body.(event.Step)
	if !ok || e.Step <= p.step {
		return
	}
	if p.step > 0 { // a resumed job's first step is not its first samples
		p.samples += int64(s.Samples) * (e.Step - p.step)
	}
	p.step, p.loss, p.seen = e.Step, s.Loss, now
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

// line words the state at now, without a line end; "" before the first step.
func (p *progress) line(now time.Time) string {
	if p.step == 0 {
		return ""
	}
	s := fmt.Sprintf("step %d", p.step)
	if p.of > 0 {
		s += fmt.Sprintf("/%d", p.of)
	}
	s += fmt.Sprintf("  loss %.4g", p.loss)
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
	s += fmt.Sprintf("  %.0f samples/s", float64(p.samples-first.samples)/elapsed)
	if p.of > p.step {
		left := elapsed / float64(p.step-first.step) * float64(p.of-p.step)
		s += fmt.Sprintf("  %v left", time.Duration(left*float64(time.Second)).Round(time.Second))
	}
	return s
}

// stalls decides which stall events become lines for people: one at once, later ones
// when they name somebody else or after a pause. It is pure and not safe for
// concurrent use.
type stalls struct {
	last string
	at   time.Time
}

// stallPause is the least time between two lines about the same stall.
const stallPause = 5 * time.Second

// line words e, a stall seen by peer index, or returns "" where nothing new is to be
// said. who turns short IDs into words.
func (s *stalls) line(index int, e event.Stall, now time.Time, who func(string) string) string {
	key := e.Culprit + "|" + e.Phase + "|" + e.What
	if key == s.last && now.Sub(s.at) < stallPause {
		return ""
	}
	s.last, s.at = key, now
	what := e.What
	if what == "" {
		what = e.Phase
	}
	return fmt.Sprintf("peer %d has waited %.1f s for %s in %s", index, e.SinceMS/1000, who(e.Culprit), what)
}
