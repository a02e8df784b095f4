package loadbal

import (
	"fmt"
	"slices"
)

// Report describes the last committed step of one rank. All ranks gather the reports of all ranks
// before they call Policy.Next.
type Report struct {
	// Share is the number of microbatches that the rank computed.
	Share  int
	Micros int64 // compute time of the share, in microseconds; 0 if unknown
	// Max bounds the microbatches that the rank can compute in a step; 0 means no bound.
	Max int
}

// Policy decides the shares of a session. Each rank holds a policy of the same name and passes it
// the same reports in the same order, so all ranks compute the same shares. A Policy has a single
// owner: it is not safe for concurrent use.
type Policy interface {
	// Begin starts a session of len(speeds) ranks and forgets the session before. speeds are
	// results of Speed, by rank; 0 means that the speed of the rank is unknown; then the policy
	// assumes the median of the known speeds.
	Begin(speeds []int64)

	// Next takes the reports of the last committed step, by rank, or nil before the first step of
	// the session. It returns the number of microbatches that each rank computes in the next step,
	// and the reason why the shares changed, in words: "" if they did not change.
	//
	// The shares add up to microbatches. No share is above the last reported Max, unless these
	// bounds together leave too little room for all microbatches. Each share is at least 1 if there
	// are enough microbatches, as a rank without work cannot be measured. The caller owns the
	// shares.
	//
	// Next panics if the number of reports is not the number of ranks of Begin.
	Next(reports []Report, microbatches int) (shares []int, why string)

	// Forecast returns the expected compute time of each rank, in microseconds, for the last shares
	// that Next returned; all times are 0 if no speed of any rank is known yet. The caller owns the
	// result.
	Forecast() []int64

	// Costs returns the cost model of each rank as the policy has learned it, with times in
	// nanoseconds; nil if no speed of any rank is known yet. The caller owns the result.
	Costs() []Cost

	// Settled returns the shares at which the policy arrives if ranks keep the given costs. It
	// depends on its arguments only, so it may be called at any time, and by several goroutines.
	// The caller owns the shares.
	Settled(costs []Cost, microbatches int) []int
}

// SpeedUnit is the speed of one microbatch per second: speeds are fixed-point numbers with 10
// fractional bits.
const SpeedUnit = 1024

// Speed returns the speed of a rank that computed share microbatches in the given number of
// microseconds: microbatches per second, times SpeedUnit. If one of the two numbers is not above 0,
// the speed is unknown and Speed returns 0.
func Speed(share int, micros int64) int64 {
	if share <= 0 || micros <= 0 {
		return 0
	}
	return max(1, int64(share)*SpeedUnit*1_000_000/micros)
}

// Names lists the names of the policies for New, the default first.
func Names() []string {
	return []string{"lbbsp-cpu", "lbb", "lbbsp-gpu", "proportional", "equal"}
}

// Variants lists names of lbbsp-cpu with an explicit forecaster, for comparisons; New accepts these
// as well. The first is the same policy as lbbsp-cpu.
func Variants() []string {
	return []string{"lbbsp-cpu-narx", "lbbsp-cpu-season", "lbbsp-cpu-plain"}
}

// New returns the policy with the given name, one of Names or Variants. The names "" and "auto"
// select the default policy. It returns an error for any other name.
func New(name string) (Policy, error) {
	switch name {
	case "", "auto", "lbbsp-cpu", "lbbsp-cpu-narx":
		return &lbbspCPU{forecaster: new(narx)}, nil
	case "lbbsp-cpu-season":
		return &lbbspCPU{forecaster: new(periodic)}, nil
	case "lbbsp-cpu-plain":
		return &lbbspCPU{forecaster: new(plain)}, nil
	case "lbbsp-gpu":
		return new(lbbspGPU), nil
	case "lbb":
		return new(lbb), nil
	case "proportional":
		return new(proportional), nil
	case "equal":
		return new(equal), nil
	}
	return nil, fmt.Errorf("loadbal: unknown policy %q: want one of %q", name, Names())
}

// table is the common part of all policies: the cost model of each rank, and the shares. Policies
// embed it and inherit Begin, Forecast, Costs and Settled.
type table struct {
	costs       []Cost // by rank, in ticks; Each is 0 for a rank without a measurement, until complete is called
	shares      []int  // present shares, which a policy keeps or replaces: the last shares, or as restoreShares has set them
	lastShares  []int  // shares that Next returned last
	otherShares []int  // the last shares for another number of microbatches
	known       bool   // whether any speed is known
}

// Begin implements Policy. It converts speeds to times per microbatch.
func (t *table) Begin(speeds []int64) {
	*t = table{costs: make([]Cost, len(speeds))}
	for r, v := range speeds {
		if v > 0 {
			t.costs[r].Each = max(1, 1_000_000*ticksPerMicro*SpeedUnit/v)
		}
	}
	t.complete()
}

// complete gives the ranks without a measurement the median time of the other ranks.
func (t *table) complete() {
	var each []int64
	for _, c := range t.costs {
		if c.Each > 0 {
			each = append(each, c.Each)
		}
	}
	t.known = len(each) > 0
	for r := range t.costs {
		if t.costs[r].Each == 0 {
			t.costs[r].Each = max(1, median(each))
		}
	}
}

// paces returns each rank's time for a microbatch, in ticks; all times are 0 if no speed is known.
func (t *table) paces() []int64 {
	paces := make([]int64, len(t.costs))
	for r, c := range t.costs {
		if t.known {
			paces[r] = c.Each
		}
	}
	return paces
}

// setBounds checks the number of reports, and takes the bounds of each rank's share from them.
func (t *table) setBounds(reports []Report) {
	if len(reports) != len(t.costs) && reports != nil {
		panic(fmt.Sprintf("loadbal: %d reports for a session of %d ranks, want one for each rank", len(reports), len(t.costs)))
	}
	for r, report := range reports {
		t.costs[r].Max = max(0, report.Max)
	}
	for r := range t.costs {
		t.costs[r].Min = 1
	}
}

// maxTime is the longest time that policies compute with, in ticks: about 2.4 hours. Longer times
// count as maxTime.
const maxTime = 1 << 43

// solve returns the optimal shares for the costs. It first limits the costs so that no product
// overflows.
func (t *table) solve(microbatches int) []int {
	for r := range t.costs {
		c := &t.costs[r]
		c.Fixed, c.Each = min(c.Fixed, maxTime), min(c.Each, maxTime/int64(max(1, microbatches)))
	}
	return Optimum(t.costs, microbatches)
}

// needsNewShares reports whether the present shares cannot be kept: there are none, they add up to
// another number of microbatches, or a share is out of its bounds.
func (t *table) needsNewShares(microbatches int) bool {
	if t.shares == nil {
		return true
	}
	bound := true
	for r, b := range t.shares {
		bound = bound && b >= min(1, microbatches/len(t.shares)) && b <= t.costs[r].limit(microbatches)
	}
	return total(t.shares) != microbatches || !bound
}

// restoreShares restores the shares of the last step that had the given number of microbatches, if
// the step just before had another number. The last step of a pass over the data may be short;
// after the short step the shares of the full steps are still good.
func (t *table) restoreShares(microbatches int) {
	if total(t.shares) != microbatches && total(t.otherShares) == microbatches {
		t.shares = t.otherShares
	}
}

// set makes the given shares the present ones. It returns a copy of them, and the reason why they
// differ from the last returned shares, or "" if the shares are equal.
func (t *table) set(shares []int) ([]int, string) {
	before := t.lastShares
	if total(before) != total(shares) {
		t.otherShares = before
	}
	t.shares, t.lastShares = shares, shares
	why := ""
	if before != nil && !slices.Equal(before, shares) {
		why = t.reason(before)
	}
	return slices.Clone(shares), why
}

// extremes returns the slowest and the fastest rank with the present shares (of equal ranks the
// lower one), and the imbalance: (longest - shortest) / mean of the times, times unit.
func (t *table) extremes() (slow, fast int, imbalance int64) {
	var sum, longest, shortest int64
	for r, c := range t.costs {
		d := c.Time(t.shares[r])
		sum += d
		if r == 0 || d > longest {
			slow, longest = r, d
		}
		if r == 0 || d < shortest {
			fast, shortest = r, d
		}
	}
	return slow, fast, quotient(longest-shortest, sum/int64(len(t.costs)))
}

// moved returns the present shares after a move of up to count microbatches from one rank to
// another. The lower bound of rank from and the upper bound of rank to may limit the move.
func (t *table) moved(from, to, count int) []int {
	shares := append([]int(nil), t.shares...)
	count = min(count, shares[from]-t.costs[from].Min)
	if most := t.costs[to].Max; most > 0 {
		count = min(count, most-shares[to])
	}
	if count > 0 {
		shares[from] -= count
		shares[to] += count
	}
	return shares
}

// reason describes the change from the shares before to the present ones: the rank whose share
// changed most, with its cost and the expected step time; or a changed number of microbatches.
func (t *table) reason(before []int) string {
	most := 0
	for r := range before {
		if abs(int64(t.shares[r]-before[r])) > abs(int64(t.shares[most]-before[most])) {
			most = r
		}
	}
	if old, now := total(before), total(t.shares); old != now {
		return fmt.Sprintf("%d microbatches instead of %d; step %s", now, old, millis(Slowest(t.costs, t.shares)))
	}
	c := t.costs[most]
	return fmt.Sprintf("rank %d: %d to %d microbatches, at %s each and %s fixed; step %s instead of %s",
		most, before[most], t.shares[most], millis(c.Each), millis(c.Fixed),
		millis(Slowest(t.costs, t.shares)), millis(Slowest(t.costs, before)))
}

// total returns the sum of the shares.
func total(shares []int) (n int) {
	for _, b := range shares {
		n += b
	}
	return n
}

// millis formats ticks as milliseconds.
func millis(ticks int64) string {
	micros := ticks / ticksPerMicro
	return fmt.Sprintf("%d.%03d ms", micros/1000, micros%1000)
}

// Forecast implements Policy by the cost model and the last shares.
func (t *table) Forecast() []int64 {
	micros := make([]int64, len(t.costs))
	for r, c := range t.costs {
		if t.known && t.lastShares != nil {
			micros[r] = c.Time(t.lastShares[r]) / ticksPerMicro
		}
	}
	return micros
}

// Costs implements Policy. It converts ticks to nanoseconds.
func (t *table) Costs() []Cost {
	if !t.known {
		return nil
	}
	costs := slices.Clone(t.costs)
	for r := range costs {
		c := &costs[r]
		c.Fixed, c.Each = nanos(c.Fixed), max(1, nanos(c.Each))
	}
	return costs
}

// Settled implements Policy by the optimum.
func (*table) Settled(costs []Cost, microbatches int) []int { return Optimum(costs, microbatches) }

// measured returns the reported compute time in ticks, at most maxTime. The result ok is false for
// a report without a measurement, or with an impossible measurement.
func (r Report) measured() (ticks int64, ok bool) {
	return min(r.Micros, maxTime/ticksPerMicro) * ticksPerMicro, r.Share > 0 && r.Share <= 1<<19 && r.Micros > 0
}
