package trainer

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
)

const (
	// pulseWindow is how many steps a member looks back for what steps take besides
	// computing.
	pulseWindow = 9
	// firstPulses is how many steps of a session it takes until that is worth something.
	firstPulses = 3
)

// pulses measures what steps take besides computing, and publishes the outlook that
// follows. The goroutine of the steps owns it, but for outlook.
type pulses struct {
	policy       string // that shares the steps out
	microbatches int    // of a full step

	epoch   uint64 // of the session that the window is of
	window  []pulse
	outlook atomic.Pointer[outlook]
}

// publish takes in a step that was just committed in a view, and what this peer has noted of it.
// tail is what the exchange of the slots took: as all are there by
// then, it is nothing but latency. The slowest rank has waited for nobody, so what the
// step took beyond its computing is fixed or communication. costs are those of the ranks, nil if
// they are not known, and bytes the length of gradients as they are sent.
func (p *pulses) publish(v elastic.View, slots []slot, tail time.Duration, own work, costs []loadbal.Cost, bytes int) {
	if p.epoch != v.Epoch {
		p.epoch, p.window = v.Epoch, nil
	}
	slowest := time.Duration(0)
	for _, o := range slots {
		if o.micros == 0 {
			return // it was not computed in one go
		}
		slowest = max(slowest, time.Duration(o.micros)*time.Microsecond)
	}
	rest := max(0, own.total-slowest)
	now := pulse{slowest: slowest, fixed: min(rest, max(0, own.total-own.compute-own.comm))}
	now.latency = min(rest-now.fixed, reductions*tail)
	now.flow = rest - now.fixed - now.latency
	if p.window = append(p.window, now); len(p.window) > pulseWindow {
		p.window = p.window[1:]
	}
	if len(p.window) < firstPulses || costs == nil {
		return
	}
	o := &outlook{policy: p.policy, microbatches: p.microbatches, costs: costs, bytes: int64(bytes), pulse: middle(p.window)}
	for _, m := range v.Members {
		o.members = append(o.members, m.ID)
	}
	p.outlook.Store(o)
}

// middle is the median of each part.
func middle(window []pulse) pulse {
	median := func(part func(pulse) time.Duration) time.Duration {
		var all []time.Duration
		for _, p := range window {
			all = append(all, part(p))
		}
		return slices.Sorted(slices.Values(all))[len(all)/2]
	}
	return pulse{
		slowest: median(func(p pulse) time.Duration { return p.slowest }),
		fixed:   median(func(p pulse) time.Duration { return p.fixed }),
		latency: median(func(p pulse) time.Duration { return p.latency }),
		flow:    median(func(p pulse) time.Duration { return p.flow }),
	}
}
