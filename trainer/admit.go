package trainer

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
)

// stepModel is a member's cost model of the steps of a session; it predicts steps with more
// members. It is immutable, so any goroutine may read it.
//
// A step of n ranks takes T(n) = computing + fixed + latency + flow. Computing is the time of the
// slowest rank under settled shares. In a ring allreduce, messages pass 2(n-1) hops one after the
// other, and each rank sends and receives 2(n-1)/n of the gradients (Thakur, Rabenseifner and
// Gropp: Optimization of collective communication operations in MPICH, 2005). Latency and flow
// are scaled from the measured step in these proportions.
type stepModel struct {
	members []elastic.ID // by rank
	// policy is the policy of load balancing, only for its method Settled.
	policy loadbal.Policy
	// microbatches is the number of microbatches in a full step.
	microbatches int
	costs        []loadbal.Cost // by rank, in nanoseconds
	// bytes is the number of bytes of gradients that a step reduces.
	bytes  int64
	timing stepTiming // median of the last steps
}

// stepTiming divides the time of a step into its parts.
type stepTiming struct {
	slowest time.Duration // computing of the slowest rank; 0 if measured with other ranks
	// fixed is the time that does not depend on the number of ranks, such as the time to apply the
	// gradient.
	fixed   time.Duration
	latency time.Duration // message latency, independent of message size
	flow    time.Duration // transfer of gradients
}

// forecast is a predicted step time.
type forecast struct{ computing, rest time.Duration }

// total returns the whole predicted step time.
func (f forecast) total() time.Duration { return f.computing + f.rest }

// latencyPasses is the number of times that a ring allreduce crosses the links of one rank in
// sequence: once in and once out, in each of the two rounds.
const latencyPasses = 4

// reductions is the number of reductions of a step that do not overlap: the buckets, which
// overlap each other, and the commit record.
const reductions = 2

// predict predicts the step time with the additional members in others. If near is true, they are
// on hosts of current members, and their own network measurements are ignored.
func (s *stepModel) predict(others []elastic.Candidate, near bool) forecast {
	costs := slices.Clone(s.costs)
	before, after := len(costs), len(costs)+len(others)
	// A ring of n ranks has n-1 hops in each of its two rounds, and sends (n-1)/n of the bytes in
	// each.
	latency := scale(s.timing.latency, after-1, before-1)
	flow := scale(s.timing.flow, (after-1)*before, (before-1)*after)
	for _, c := range others {
		costs = append(costs, s.cost(c))
		if near {
			continue
		}
		latency = max(latency, reductions*latencyPasses*bounded(float64(c.Delay))/2)
		if c.Bandwidth > 0 {
			bytes := 2 * float64(after-1) / float64(after) * float64(s.bytes)
			flow = max(flow, bounded(bytes/float64(c.Bandwidth)*float64(time.Second)))
		}
	}
	shares := s.policy.Settled(costs, s.microbatches)
	return forecast{time.Duration(loadbal.Slowest(costs, shares)), s.timing.fixed + latency + flow}
}

// scale returns d*num/den, or d if den is 0: den is 0 for a single rank, which has measured no
// communication.
func scale(d time.Duration, num, den int) time.Duration {
	if den == 0 {
		return d
	}
	return time.Duration(float64(d) * float64(num) / float64(den))
}

// cost returns the cost of a candidate. An unknown speed is taken to be the median of the
// members.
func (s *stepModel) cost(c elastic.Candidate) loadbal.Cost {
	cost := loadbal.Cost{Fixed: int64(bounded(float64(c.Fixed))), Min: 1, Max: max(0, c.Most)}
	if c.Speed > 0 {
		cost.Each = loadbal.Pace(c.Speed)
	} else {
		var each []int64
		for _, m := range s.costs {
			each = append(each, m.Each)
		}
		cost.Each = slices.Sorted(slices.Values(each))[len(each)/2]
	}
	// The bound keeps the sums of the forecast from overflowing, whatever speed the candidate
	// claims.
	cost.Each = min(cost.Each, int64(2*time.Hour)/int64(max(1, s.microbatches)))
	return cost
}

// bounded returns nanos as a duration between 0 and an hour. The inputs are claims of a candidate,
// which the members do not trust.
func bounded(nanos float64) time.Duration {
	return time.Duration(min(max(0, nanos), float64(time.Hour)))
}

// minGain is the fraction by which a step must get shorter for a candidate to be admitted. A
// smaller gain is within the noise of the measurements, and each additional member may fail.
const minGain = 0.01

// decide returns nil if steps get shorter with the candidate, or if the candidate's speed is
// unknown. Otherwise it returns an error with both step times and the reason.
func (s *stepModel) decide(a elastic.Application, microbatch int) error {
	if a.Speed == 0 {
		return nil
	}
	now := s.predict(a.Coming, a.Near)
	// While another load slows a rank down, the policy's costs may predict more than the measured
	// time. Without the correction every candidate would seem to shorten steps.
	if m := s.timing.slowest; m > 0 && len(a.Coming) == 0 {
		now.computing = min(now.computing, m)
	}
	then := s.predict(append(slices.Clone(a.Coming), a.Candidate), a.Near)
	if float64(then.total()) < float64(now.total())*(1-minGain) {
		return nil
	}
	return fmt.Errorf("a step would take %s with the newcomer and takes %s without (computing %s and %s); samples/s: the newcomer %.0f, the %d members %.0f",
		formatMillis(then.total()), formatMillis(now.total()), formatMillis(then.computing), formatMillis(now.computing),
		rate(s.cost(a.Candidate), microbatch), len(s.costs), rates(s.costs, microbatch))
}

// rate returns the samples per second at cost c.
func rate(c loadbal.Cost, microbatch int) float64 { return float64(microbatch) * 1e9 / float64(c.Each) }

// rates returns the sum of the members' rates, in samples per second.
func rates(costs []loadbal.Cost, microbatch int) (sum float64) {
	for _, c := range costs {
		sum += rate(c, microbatch)
	}
	return sum
}

// formatMillis formats a duration in milliseconds for an error.
func formatMillis(d time.Duration) string { return fmt.Sprintf("%.1f ms", milliseconds(d)) }

// admitter decides which candidates may join.
type admitter struct {
	always     bool // admits everybody (AdmitAlways)
	microbatch int  // samples per microbatch
	// model holds the step model of the last steps, or nil if the session has had too few steps.
	model *atomic.Pointer[stepModel]
}

// Admit decides whether a candidate may join. It implements elastic.Judge and is safe for
// concurrent use. The error wraps elastic.ErrNotYet if the members have no step model yet.
func (a admitter) Admit(p elastic.Application) error {
	if a.always || p.Forced {
		return nil
	}
	o := a.model.Load()
	if o == nil || slices.ContainsFunc(p.Members, func(id elastic.ID) bool { return !slices.Contains(o.members, id) }) {
		return fmt.Errorf("%w: the members have not done enough steps together", elastic.ErrNotYet)
	}
	return o.restrict(p.Members).decide(p, a.microbatch)
}

// restrict returns the model of the given subset of the members.
func (s *stepModel) restrict(members []elastic.ID) *stepModel {
	if len(members) == len(s.members) {
		return s
	}
	left := *s
	left.costs = nil
	for rank, id := range s.members {
		if slices.Contains(members, id) {
			left.costs = append(left.costs, s.costs[rank])
		}
	}
	before, after := len(s.costs), len(left.costs)
	// slowest was measured with all members, so it does not apply to the subset.
	left.timing.slowest = 0
	left.timing.latency = scale(s.timing.latency, after-1, before-1)
	left.timing.flow = scale(s.timing.flow, (after-1)*before, (before-1)*after)
	return &left
}

const (
	// timingWindow is the number of recent steps of which a member keeps timings.
	timingWindow = 9
	// minTimings is the least number of steps of a session whose median is used.
	minTimings = 3
)

// stepTimings measures the parts of steps, and publishes the resulting step model. The
// goroutine of the steps owns all fields except model, which any goroutine may load.
type stepTimings struct {
	// policy is the policy of load balancing, for the step model.
	policy loadbal.Policy
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
	rest := max(0, own.try-slowest)
	now := stepTiming{slowest: slowest, fixed: min(rest, max(0, own.try-own.compute-own.comm))}
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
