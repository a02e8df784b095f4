package loadbal

// Parameters of tuning. The imbalance is (longest - shortest) / mean of the times, in parts of
// unit. Below holdBelow the shares stay. From holdBelow to tuneBelow one microbatch is moved. From
// tuneBelow on, Optimum computes new shares; in the next tuneSteps steps only single microbatches
// are moved.
const (
	holdBelow = unit / 20
	tuneBelow = unit * 3 / 10
	tuneSteps = 5
)

// tuning is the policy LBB (load-balanced batching). It keeps the shares if the imbalance is small.
// If the imbalance is moderate, it moves one microbatch from the slowest to the fastest rank.
// Otherwise it computes the optimal shares for the costs of the last measurement.
type tuning struct {
	table
	fixed    []fixedPart
	tuneOnly int // remaining steps in which only single microbatches are moved
}

// Begin implements Policy.
func (t *tuning) Begin(speeds []int64) {
	t.table.Begin(speeds)
	t.fixed, t.tuneOnly = make([]fixedPart, len(speeds)), 0
}

// Next implements Policy.
func (l *tuning) Next(reports []Report, microbatches int) ([]int, string) {
	l.setBounds(reports)
	for r, report := range reports {
		if t, ok := report.measured(); ok {
			f := &l.fixed[r]
			f.observe(report.Share, t, defaultNoise)
			l.costs[r].Each = f.pace(report.Share, t)
			l.costs[r].Fixed = f.ticks(l.costs[r].Each)
			l.known = true
		}
	}
	l.tuneOnly = max(0, l.tuneOnly-1)
	best := l.solve(microbatches)
	if l.needsNewShares(microbatches) {
		return l.set(best)
	}
	slow, fast, imbalance := l.extremes()
	switch {
	case imbalance < holdBelow:
		return l.set(l.shares)
	case imbalance < tuneBelow || l.tuneOnly > 0:
		return l.set(l.moved(slow, fast, 1))
	}
	l.tuneOnly = tuneSteps
	return l.set(best)
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
