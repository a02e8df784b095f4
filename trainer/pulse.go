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
	epoch   uint64 // of the session that the window is of
	window  []pulse
	outlook atomic.Pointer[outlook]
}

// publish takes in a step of a session that was just committed, of which this peer has
// noted its own times. tail is what the exchange of the slots took: as all are there by
// then, it is nothing but latency. The slowest rank has waited for nobody, so what the
// step took beyond its computing is fixed or communication.
func (r *runner) publish(s *elastic.Session, slots []slot, tail time.Duration) {
	p := &r.pulses
	if p.epoch != s.View.Epoch {
		p.epoch, p.window = s.View.Epoch, nil
	}
	slowest := time.Duration(0)
	for _, o := range slots {
		if o.micros == 0 {
			return // it was not computed in one go
		}
		slowest = max(slowest, time.Duration(o.micros)*time.Microsecond)
	}
	rest := max(0, r.reporter.own.total-slowest)
	now := pulse{slowest: slowest, fixed: min(rest, max(0, r.reporter.own.total-r.reporter.own.compute-r.reporter.own.comm))}
	now.latency = min(rest-now.fixed, reductions*tail)
	now.flow = rest - now.fixed - now.latency
	if p.window = append(p.window, now); len(p.window) > pulseWindow {
		p.window = p.window[1:]
	}
	policy, ok := r.balance.policy.(loadbal.Costed)
	if !ok || len(p.window) < firstPulses {
		return
	}
	costs := policy.Costs()
	if costs == nil {
		return
	}
	o := &outlook{policy: r.cfg.Balance, microbatches: r.plan.mostMicrobatches(), costs: costs,
		bytes: int64(r.compressed.bytes(r.layout)), pulse: middle(p.window)}
	for _, m := range s.View.Members {
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
