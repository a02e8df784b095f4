package trainer

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
)

// Values of Config.Admit.
const (
	// AdmitIfItHelps parks a peer with which steps would not be shorter.
	AdmitIfItHelps = "helps"
	// AdmitAlways lets in whoever may join.
	AdmitAlways = "always"
)

// stepModel is what a member knows of the steps of a session, to predict those with others
// in it. It does not change once it is made, so that any goroutine may read it.
//
// A step of n ranks takes T(n) = computing + fixed + latency + flow. The computing is that
// of the slowest rank when shares have settled. Messages go through 2(n-1) hops one after
// the other, and each rank sends and receives 2(n-1)/n of the gradients: in proportion to
// that the two parts grow from what was measured.
type stepModel struct {
	members      []elastic.ID
	policy       string
	microbatches int
	costs        []loadbal.Cost // by rank, in nanoseconds
	bytes        int64          // of gradients
	timing       stepTiming     // median of the last steps
}

// stepTiming is what a step takes.
type stepTiming struct {
	slowest time.Duration // computing of the slowest rank, 0 if it was of other ranks
	fixed   time.Duration // does not depend on the number of ranks: applying the gradient
	latency time.Duration // waiting for messages, however short they are
	flow    time.Duration // waiting for the bytes of gradients
}

// forecast is a predicted step.
type forecast struct{ computing, rest time.Duration }

func (f forecast) total() time.Duration { return f.computing + f.rest }

// latencyPasses is how often a reduction around the ring goes through the links of one
// rank one after the other: it is left and entered in each of the two rounds.
const latencyPasses = 4

// reductions of a step follow one after the other: the buckets, which overlap, and the
// commit record.
const reductions = 2

// predict predicts steps in which others take part as well. near says that what these have
// measured of the network does not count.
func (o *stepModel) predict(others []elastic.Candidate, near bool) forecast {
	costs := slices.Clone(o.costs)
	before, after := len(costs), len(costs)+len(others)
	latency := scale(o.timing.latency, after-1, before-1)
	flow := scale(o.timing.flow, (after-1)*before, (before-1)*after)
	for _, c := range others {
		costs = append(costs, o.cost(c))
		if near {
			continue
		}
		latency = max(latency, reductions*latencyPasses*bounded(float64(c.Delay))/2)
		if c.Bandwidth > 0 {
			bytes := 2 * float64(after-1) / float64(after) * float64(o.bytes)
			flow = max(flow, bounded(bytes/float64(c.Bandwidth)*float64(time.Second)))
		}
	}
	shares := settledShares(o.policy, costs, o.microbatches)
	return forecast{time.Duration(loadbal.Slowest(costs, shares)), o.timing.fixed + latency + flow}
}

// settledShares is how a policy splits microbatches in the end if costs stay what they are: for all
// but "equal" that is the optimum.
func settledShares(policy string, costs []loadbal.Cost, microbatches int) []int {
	if policy != "equal" {
		return loadbal.Optimum(costs, microbatches)
	}
	same := slices.Clone(costs)
	for r := range same {
		same[r].Fixed, same[r].Each = 0, 1
	}
	return loadbal.Optimum(same, microbatches)
}

// scale returns d*num/den. One rank alone has measured no communication: den is 0 then.
func scale(d time.Duration, num, den int) time.Duration {
	if den == 0 {
		return d
	}
	return time.Duration(float64(d) * float64(num) / float64(den))
}

// cost is that of a candidate. One whose speed is not known is taken for a middling one.
func (o *stepModel) cost(c elastic.Candidate) loadbal.Cost {
	cost := loadbal.Cost{Fixed: int64(bounded(float64(c.Fixed))), Min: 1, Max: max(0, c.Most)}
	if c.Speed > 0 {
		cost.Each = loadbal.Pace(c.Speed)
	} else {
		var each []int64
		for _, m := range o.costs {
			each = append(each, m.Each)
		}
		cost.Each = slices.Sorted(slices.Values(each))[len(each)/2]
	}
	cost.Each = min(cost.Each, int64(2*time.Hour)/int64(max(1, o.microbatches)))
	return cost
}

// bounded is so many nanoseconds, between none and an hour: a candidate says what it likes.
func bounded(nanos float64) time.Duration {
	return time.Duration(min(max(0, nanos), float64(time.Hour)))
}

// minGain is the part by which a step has to get shorter for a peer to be let in: less
// is not seen among the noise, and each member can fail.
const minGain = 0.01

// decide returns nil if steps get shorter with a peer, and otherwise how long they would
// be and why.
func (o *stepModel) decide(a elastic.Application, microbatch int) error {
	if a.Speed == 0 {
		return nil
	}
	now := o.predict(a.Coming, a.Near)
	// Where the costs are thought higher than they have been, because of a disturbance,
	// any help would seem to be one.
	if m := o.timing.slowest; m > 0 && len(a.Coming) == 0 {
		now.computing = min(now.computing, m)
	}
	then := o.predict(append(slices.Clone(a.Coming), a.Candidate), a.Near)
	if float64(then.total()) < float64(now.total())*(1-minGain) {
		return nil
	}
	return fmt.Errorf("a step would take %s with it and takes %s without (computing %s and %s); it computes %.0f samples/s, the %d members %.0f together",
		formatMillis(then.total()), formatMillis(now.total()), formatMillis(then.computing), formatMillis(now.computing),
		rate(o.cost(a.Candidate), microbatch), len(o.costs), rates(o.costs, microbatch))
}

// rate is the samples a second at a cost.
func rate(c loadbal.Cost, microbatch int) float64 { return float64(microbatch) * 1e9 / float64(c.Each) }

func rates(costs []loadbal.Cost, microbatch int) (sum float64) {
	for _, c := range costs {
		sum += rate(c, microbatch)
	}
	return sum
}

// formatMillis writes a time for people.
func formatMillis(d time.Duration) string { return fmt.Sprintf("%.1f ms", milliseconds(d)) }

// admitter decides which peers may join.
type admitter struct {
	always     bool // lets in whoever may
	microbatch int
	model      *atomic.Pointer[stepModel] // of the last steps; holds nil if there were too few
}

// Admit decides whether a peer may join. It implements elastic.Judge and may be called by
// any goroutine.
func (j admitter) Admit(a elastic.Application) error {
	if j.always || a.Forced {
		return nil
	}
	o := j.model.Load()
	if o == nil || slices.ContainsFunc(a.Members, func(id elastic.ID) bool { return !slices.Contains(o.members, id) }) {
		return fmt.Errorf("%w: the members have not done enough steps together", elastic.ErrNotYet)
	}
	return o.restrict(a.Members).decide(a, j.microbatch)
}

// restrict returns the model of the members that are left.
func (o *stepModel) restrict(members []elastic.ID) *stepModel {
	if len(members) == len(o.members) {
		return o
	}
	left := *o
	left.costs = nil
	for rank, id := range o.members {
		if slices.Contains(members, id) {
			left.costs = append(left.costs, o.costs[rank])
		}
	}
	before, after := len(o.costs), len(left.costs)
	left.timing.slowest = 0
	left.timing.latency = scale(o.timing.latency, after-1, before-1)
	left.timing.flow = scale(o.timing.flow, (after-1)*before, (before-1)*after)
	return &left
}

// errAdmit says what Config.Admit may be.
var errAdmit = errors.New(`want "helps" or "always"`)

// checkAdmit checks Config.Admit.
func checkAdmit(value string) error {
	if value != AdmitIfItHelps && value != AdmitAlways {
		return fmt.Errorf("trainer: Admit is %q: %w", value, errAdmit)
	}
	return nil
}
