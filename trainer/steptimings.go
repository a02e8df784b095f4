package trainer

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
)

const (
	// timingWindow is how many steps a member looks back for what steps take besides
	// computing.
	timingWindow = 9
	// minTimings is how many steps of a session it takes until that is worth something.
	minTimings = 3
)

// stepTimings measures what steps take besides computing, and publishes the step model that
// follows. The goroutine of the steps owns it, but for model.
type stepTimings struct {
	policy       string // that shares the steps out
	microbatches int    // of a full step

	epoch  uint64 // of the session that the window is of
	window []stepTiming
	model  atomic.Pointer[stepModel]
}

// publish takes in a step that was just committed in a view, and what this peer has noted of it.
// exchange is what the exchange of the reports took: as all are there by
// then, it is nothing but latency. The slowest rank has waited for nobody, so what the
// step took beyond its computing is fixed or communication. costs are those of the ranks, nil if
// they are not known, and bytes the length of gradients as they are sent.
func (p *stepTimings) publish(v elastic.View, reports []rankReport, exchange time.Duration, own work, costs []loadbal.Cost, bytes int) {
	if p.epoch != v.Epoch {
		p.epoch, p.window = v.Epoch, nil
	}
	slowest := time.Duration(0)
	for _, o := range reports {
		if o.micros == 0 {
			return // it was not computed in one go
		}
		slowest = max(slowest, time.Duration(o.micros)*time.Microsecond)
	}
	rest := max(0, own.total-slowest)
	now := stepTiming{slowest: slowest, fixed: min(rest, max(0, own.total-own.compute-own.comm))}
	now.latency = min(rest-now.fixed, reductions*exchange)
	now.flow = rest - now.fixed - now.latency
	if p.window = append(p.window, now); len(p.window) > timingWindow {
		p.window = p.window[1:]
	}
	if len(p.window) < minTimings || costs == nil {
		return
	}
	o := &stepModel{policy: p.policy, microbatches: p.microbatches, costs: costs, bytes: int64(bytes), timing: medianTiming(p.window)}
	for _, m := range v.Members {
		o.members = append(o.members, m.ID)
	}
	p.model.Store(o)
}

// medianTiming is the median of each part.
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
