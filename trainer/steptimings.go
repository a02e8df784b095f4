package trainer

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
)

const (
	// timingWindow is the number of recent steps of which a member keeps timings.
	timingWindow = 9
	// minTimings is the least number of steps of a session whose median is used.
	minTimings = 3
)

// stepTimings measures the parts of steps, and publishes the resulting step model (admit.go). The
// goroutine of the steps owns all fields except model, which any goroutine may load.
type stepTimings struct {
	// policy is the policy of load balancing under which the window was measured.
	policy string
	// microbatches is the number of microbatches in a full step.
	microbatches int

	// epoch is the epoch of the session in which the window was measured.
	epoch  uint64
	window []stepTiming // timings of the last steps
	model  atomic.Pointer[stepModel]
}

// publish evaluates a committed step in a view, with this peer's measurements in own. exchange is
// the time of the exchange of reports. It consists of latency only, because all ranks have finished
// their reductions before. The slowest rank does not wait for another rank, so the remaining time of
// the step is the fixed part and communication. costs are the costs of the ranks, nil if they are
// unknown, and bytes is the encoded length of the gradients.
func (s *stepTimings) publish(v elastic.View, reports []rankReport, exchange time.Duration, own work, costs []loadbal.Cost, bytes int) {
	if s.epoch != v.Epoch {
		s.epoch, s.window = v.Epoch, nil
	}
	slowest := time.Duration(0)
	for _, o := range reports {
		if o.micros == 0 {
			return // a rank has no measurement for this step
		}
		slowest = max(slowest, time.Duration(o.micros)*time.Microsecond)
	}
	// Split the time beyond the slowest rank's computing: first the fixed part, then latency,
	// then flow.
	rest := max(0, own.total-slowest)
	now := stepTiming{slowest: slowest, fixed: min(rest, max(0, own.total-own.compute-own.comm))}
	now.latency = min(rest-now.fixed, reductions*exchange)
	now.flow = rest - now.fixed - now.latency
	if s.window = append(s.window, now); len(s.window) > timingWindow {
		s.window = s.window[1:]
	}
	if len(s.window) < minTimings || costs == nil {
		return
	}
	o := &stepModel{policy: s.policy, microbatches: s.microbatches, costs: costs, bytes: int64(bytes), timing: medianTiming(s.window)}
	for _, m := range v.Members {
		o.members = append(o.members, m.ID)
	}
	s.model.Store(o)
}

// medianTiming returns the median of each part.
func medianTiming(window []stepTiming) stepTiming {
	median := func(part func(stepTiming) time.Duration) time.Duration {
		var all []time.Duration
		for _, p := range window {
			all = append(all, part(p))
		}
		return slices.Sorted(slices.Values(all))[len(all)/2]
	}
	return stepTiming{
		slowest: median(func(p stepTiming) time.Duration { return p.slowest }),
		fixed:   median(func(p stepTiming) time.Duration { return p.fixed }),
		latency: median(func(p stepTiming) time.Duration { return p.latency }),
		flow:    median(func(p stepTiming) time.Duration { return p.flow }),
	}
}
