package loadbal

import (
	"fmt"
	"slices"
)

// Report is what one rank tells of the last step that was committed.
type Report struct {
	Share  int   // microbatches it computed
	Micros int64 // time it took in the model, in microseconds; 0 if unknown
	Max    int   // most microbatches that it can take in a step; 0 for no bound
}

// Policy decides the shares of a session. The ranks of a session hold equal policies,
// feed them the same reports in the same order and so come to the same shares. A Policy
// has a single owner: it is not safe for concurrent use.
type Policy interface {
	// Begin starts a session of len(speeds) ranks and forgets what was before.
	// speeds are those of Speed; one of 0 is unknown, and the median of the known
	// ones is assumed.
	Begin(speeds []int64)

	// Next takes the reports of the step that was committed, by rank, or nil before
	// the first step of the session. It returns how many of so many microbatches each
	// rank computes in the next step, and in words why the shares changed: "" if they
	// did not. The shares add up to microbatches, none is above the Max last
	// reported unless all these together leave too little room, and each is at least
	// 1 if there are microbatches enough: a rank without work cannot be measured.
	// The caller owns the shares. It panics if there are reports of another number of
	// ranks than Begin was told.
	Next(reports []Report, microbatches int) (shares []int, why string)

	// Forecast is what the shares that Next returned last are expected to take each
	// rank, in microseconds; 0 where nothing is known yet. The caller owns it.
	Forecast() []int64

	// Costs are those of the ranks as the policy has learned them, with times in nanoseconds;
	// nil where no speed is known yet. The caller owns them.
	Costs() []Cost
}

// SpeedUnit is the speed of one microbatch a second.
const SpeedUnit = 1024

// Speed is the speed of a rank that computed share microbatches in so many
// microseconds, in microbatches a second, times SpeedUnit; 0 where that is unknown.
func Speed(share int, micros int64) int64 {
	if share <= 0 || micros <= 0 {
		return 0
	}
	return max(1, int64(share)*SpeedUnit*1_000_000/micros)
}

// Names lists the policies that New knows, the default first.
func Names() []string {
	return []string{"lbbsp-cpu", "lbb", "lbbsp-gpu", "proportional", "equal"}
}

// Variants lists names of lbbsp-cpu by its ways to predict speeds, which New knows as
// well. The first is that of lbbsp-cpu.
func Variants() []string {
	return []string{"lbbsp-cpu-narx", "lbbsp-cpu-season", "lbbsp-cpu-plain"}
}

// New returns the policy of a name, one of Names or Variants; that of "" and "auto" is
// the default.
func New(name string) (Policy, error) {
	switch name {
	case "", "auto", "lbbsp-cpu", "lbbsp-cpu-narx":
		return &predicting{forecaster: new(narx)}, nil
	case "lbbsp-cpu-season":
		return &predicting{forecaster: new(periodic)}, nil
	case "lbbsp-cpu-plain":
		return &predicting{forecaster: new(ewmaForecaster)}, nil
	case "lbbsp-gpu":
		return new(exchange), nil
	case "lbb":
		return new(tuning), nil
	case "proportional":
		return new(proportional), nil
	case "equal":
		return new(equal), nil
	}
	return nil, fmt.Errorf("loadbal: no policy is called %q; there are %q", name, Names())
}

// table is what all policies keep: the ranks' costs as they see them, and the shares.
type table struct {
	costs       []Cost // in ticks; Each is 0 where nothing is known, until complete
	shares      []int  // that new ones are compared with: the last ones, but for recall
	lastShares  []int  // handed out last
	otherShares []int  // handed out last for another number of microbatches
	known       bool   // a speed is
}

func (t *table) Begin(speeds []int64) {
	*t = table{costs: make([]Cost, len(speeds))}
	for r, v := range speeds {
		if v > 0 {
			t.costs[r].Each = max(1, 1_000_000*ticksPerMicro*SpeedUnit/v)
		}
	}
	t.complete()
}

// complete gives ranks of which nothing is known the median of the others.
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

// paces are the ticks of a microbatch of each rank; 0 where nothing is known.
func (t *table) paces() []int64 {
	paces := make([]int64, len(t.costs))
	for r, c := range t.costs {
		if t.known {
			paces[r] = c.Each
		}
	}
	return paces
}

// setBounds checks reports, and takes the bounds from them.
func (t *table) setBounds(reports []Report) {
	if len(reports) != len(t.costs) && reports != nil {
		panic(fmt.Sprintf("loadbal: %d reports for a session of %d ranks", len(reports), len(t.costs)))
	}
	for r, report := range reports {
		t.costs[r].Max = max(0, report.Max)
	}
	for r := range t.costs {
		t.costs[r].Min = 1
	}
}

// maxTime is the longest time that policies reckon with, in ticks: two hours.
const maxTime = 1 << 43

// solve is the optimum for the costs, within bounds in which nothing overflows.
func (t *table) solve(microbatches int) []int {
	for r := range t.costs {
		c := &t.costs[r]
		c.Fixed, c.Each = min(c.Fixed, maxTime), min(c.Each, maxTime/int64(max(1, microbatches)))
	}
	return Optimum(t.costs, microbatches)
}

// needsNewShares reports whether shares must be made without regard to those before: there are
// none, or of another number of microbatches, or one is out of its bounds.
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

// restoreShares makes the shares those of the last step of so many microbatches, if that was not
// the one before: the last step of a pass may be short, and what is set for it says nothing
// against the shares of full steps.
func (t *table) restoreShares(microbatches int) {
	if total(t.shares) != microbatches && total(t.otherShares) == microbatches {
		t.shares = t.otherShares
	}
}

// set takes over shares, and returns a copy and why they are others than the last ones.
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

// reason tells of the rank whose share changed most, and what the change is to bring, or
// that there are more or fewer microbatches to share out.
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
	return fmt.Sprintf("rank %d: %d to %d, at %s a microbatch and %s fixed; step %s instead of %s",
		most, before[most], t.shares[most], millis(c.Each), millis(c.Fixed),
		millis(Slowest(t.costs, t.shares)), millis(Slowest(t.costs, before)))
}

// total is the microbatches of all ranks.
func total(shares []int) (n int) {
	for _, b := range shares {
		n += b
	}
	return n
}

// millis writes ticks as milliseconds.
func millis(ticks int64) string {
	micros := ticks / ticksPerMicro
	return fmt.Sprintf("%d.%03d ms", micros/1000, micros%1000)
}

func (t *table) Forecast() []int64 {
	micros := make([]int64, len(t.costs))
	for r, c := range t.costs {
		if t.known && t.shares != nil {
			micros[r] = c.Time(t.shares[r]) / ticksPerMicro
		}
	}
	return micros
}

// measured is what a report tells of times, in ticks; ok is false where it is nothing, or
// nothing that can be.
func (r Report) measured() (ticks int64, ok bool) {
	return min(r.Micros, maxTime/ticksPerMicro) * ticksPerMicro, r.Share > 0 && r.Share <= 1<<19 && r.Micros > 0
}
