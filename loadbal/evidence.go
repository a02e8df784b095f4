package loadbal

import "slices"

// evidence decides whether the shares of a session may be far from equal ones. A policy assumes that
// times follow shares. If they do not, a rank with half as many microbatches and the same time looks
// half as fast, so that each measurement confirms the last shares, and noise moves them to the
// extremes. Past times cannot show this: a rank that was slow by chance gets a smaller share, and is
// faster in the next step in any case. It looks like a rank that has become slow and whose smaller
// share takes less time.
//
// Only a change of the shares that no measurement has caused shows whether times follow shares. So
// evidence tests shares that are far from equal ones: the steps alternate between these shares (the
// base) and shares that lie nearer to equal ones (the dip). The score of the test compares two
// hypotheses, that the times change as the costs predict and that they do not change (the
// sequential probability ratio test of A. Wald, "Sequential tests of statistical hypotheses", Annals
// of Mathematical Statistics 16, 1945). If the times do not change, the ranks get equal shares for a
// while.
type evidence struct {
	last []Report
	seen int // number of observed steps

	// State before a test.
	age    int // number of steps with far shares since the last test
	little int // number of these steps in a row in which the shares promised little

	// The running test.
	base, dip []int   // alternating shares; nil without a test
	predicted []int64 // by rank, relative change of the time from base to dip, times unit
	steps     int     // number of steps of the test
	score     int64   // above 0 if times rather follow shares; the unit is the square of unit
	promised  int64   // gain of the base over equal shares by the costs, times unit

	// Result of the last test.
	follows bool
	rest    int // remaining steps in which the result holds
	passed  int // number of tests that passed
	failed  int // number of tests that failed since one passed
}

// Parameters of evidence. The noise in them is the relative error of the times, times unit.
const (
	// free is the relative difference from an equal share up to which a share needs no test.
	free = unit / 4
	// A test ends when the score is certain times the square of the noise.
	certain     = 32
	longestTest = 16 // greatest number of steps of a test
	leastNoise  = unit / 512
	// knownAfter is the number of steps after which the noise is known well enough for a test.
	knownAfter = 16
	// soonest and latest bound the number of steps with far shares before a test. Shares that noise
	// cannot move quickly are tested later.
	soonest, latest = 4, 256
	// shortRest is the number of steps for which the result of a first test holds.
	shortRest = 128
	// urgent is the gain for which a policy is followed before the end of a test, or, in addition to
	// the promise of the test, before the end of the rest after it.
	urgent = unit / 2
)

// observe records the reports of a step, and adds them to the score of a test.
func (e *evidence) observe(reports []Report, noise int64) {
	last := e.last
	e.last, e.seen = slices.Clone(reports), e.seen+1
	sign := int64(1)
	switch {
	case e.base == nil || last == nil:
		return
	case have(last, e.base) && have(reports, e.dip):
	case have(last, e.dip) && have(reports, e.base):
		sign = -1
	default:
		return
	}
	for r, x := range e.predicted {
		before, ok0 := last[r].measured()
		now, ok1 := reports[r].measured()
		if ok0 && ok1 {
			// The change is clipped around the middle of the hypotheses, so that one outlier does
			// not decide.
			most := abs(x) + 2*max(noise, leastNoise)
			e.score += x * max(-most, min(most, sign*change(before, now)-x/2))
		}
	}
}

// have reports whether reports are of the given shares.
func have(reports []Report, shares []int) bool {
	return slices.EqualFunc(reports, shares, func(r Report, b int) bool { return r.Share == b })
}

// change returns the change from one time to another, relative to their mean and times unit.
func change(from, to int64) int64 { return quotient(to-from, (from+to)/2) }

// limit returns the shares of the next step: the shares that a policy wants, equal ones, or those of
// a test. The costs are the policy's.
func (e *evidence) limit(costs []Cost, wanted []int, noise int64) []int {
	noise = max(noise, leastNoise)
	equal := equalShares(costs, total(wanted))
	e.rest = max(0, e.rest-1)
	switch {
	case farthest(wanted, equal) < free:
		e.base, e.age = nil, 0
		return wanted
	case e.rest > 0 && e.follows:
		return wanted
	case e.rest > 0 && gain(costs, equal, wanted) <= e.promised+urgent:
		return equal
	}
	e.rest = 0
	if e.base == nil {
		return e.watch(costs, wanted, equal, noise)
	}
	return e.proceed(costs, wanted, equal, noise)
}

// watch returns the shares of a step without a test, and may begin a test. Far shares have to
// promise a gain: by the costs, an eighth of their distance from equal ones.
func (e *evidence) watch(costs []Cost, wanted, equal []int, noise int64) []int {
	if e.seen < knownAfter {
		return wanted
	}
	promised := gain(costs, equal, wanted)
	e.little++
	if 8*promised >= farthest(wanted, equal) {
		e.little = 0
	}
	if e.little > 1 {
		e.age = 0
		return equal
	}
	e.age++
	wait := int64(soonest)
	if e.failed == 0 {
		wait = max(soonest, min(latest, unit/noise*unit/noise/64))
	}
	if int64(e.age) < wait || total(wanted) != shared(e.last) {
		return wanted
	}
	e.promised = promised
	if !e.begin(costs, wanted, equal, certain*noise*noise) {
		e.conclude(false)
		return equal
	}
	return wanted
}

// begin begins a test of the wanted shares. The dip is as near to the base as two steps with it
// allow, or equal shares if these take more steps. begin returns false if even equal shares would
// show nothing in a whole test. Each pair of steps is expected to change the score by half the sum
// of the squares of the predicted changes.
func (e *evidence) begin(costs []Cost, wanted, equal []int, goal int64) bool {
	for shift := 3; shift >= 0; shift-- {
		dip := between(wanted, equal, shift)
		predicted, squares := make([]int64, len(costs)), int64(0)
		for r, c := range costs {
			predicted[r] = change(c.Time(wanted[r]), c.Time(dip[r]))
			squares += predicted[r] * predicted[r]
		}
		if squares > 2*goal || shift == 0 && squares*longestTest/4 > goal {
			e.base, e.dip, e.predicted, e.steps, e.score = slices.Clone(wanted), dip, predicted, 0, 0
			return true
		}
	}
	return false
}

// proceed returns the shares of the next step of a test, or those after its end. A test ends after
// a step with the base, as the two changes of a dip together are not affected by a slow drift.
func (e *evidence) proceed(costs []Cost, wanted, equal []int, noise int64) []int {
	e.steps++
	switch {
	case !within(costs, e.base) || !within(costs, e.dip) || gain(costs, e.base, wanted) > urgent:
		e.base = nil
		return wanted
	case total(e.base) != total(wanted): // the short step at the end of a pass
		if e.steps > longestTest {
			e.base = nil
		}
		return wanted
	case e.steps > longestTest, have(e.last, e.base) && abs(e.score) > certain*noise*noise:
		if e.conclude(e.score > 0); e.follows {
			return wanted
		}
		return equal
	case e.steps%2 == 1:
		return e.dip
	}
	return e.base
}

// conclude ends a test. Its result holds the longer the more tests had the same result.
func (e *evidence) conclude(follows bool) {
	e.base, e.age, e.follows = nil, 0, follows
	if follows {
		e.rest = shortRest << min(5, e.passed)
		e.passed, e.failed = e.passed+1, 0
		return
	}
	e.rest = shortRest << min(3, e.failed)
	e.failed++
}

// equalShares returns equal shares within the bounds of the ranks.
func equalShares(costs []Cost, microbatches int) []int {
	same := make([]Cost, len(costs))
	for r, c := range costs {
		same[r] = Cost{Each: 1, Min: c.Min, Max: c.Max}
	}
	return Optimum(same, microbatches)
}

// farthest returns by how much the smallest share, in relation to an equal one, is below it, times
// unit.
func farthest(shares, equal []int) (most int64) {
	for r, b := range equal {
		most = max(most, quotient(int64(b-shares[r]), int64(b)))
	}
	return most
}

// gain returns by how much a step gets shorter from one set of shares to another, times unit.
func gain(costs []Cost, from, to []int) int64 {
	then := Slowest(costs, to)
	return quotient(Slowest(costs, from)-then, then)
}

// between returns shares on the way from a to b: a 2^shift-th of the way.
func between(a, b []int, shift int) []int {
	moved, missing := make([]int, len(a)), 0
	for r := range a {
		moved[r] = a[r] + (b[r]-a[r])>>shift // rounded down
		missing += a[r] - moved[r]
	}
	for r := 0; missing > 0; r = (r + 1) % len(a) {
		if moved[r] < a[r] {
			moved[r]++
			missing--
		}
	}
	return moved
}

// within reports whether shares are within the bounds of the ranks.
func within(costs []Cost, shares []int) bool {
	for r, c := range costs {
		if shares[r] < c.Min || shares[r] > c.limit(total(shares)) {
			return false
		}
	}
	return true
}

// shared returns the number of microbatches in reports.
func shared(reports []Report) (n int) {
	for _, report := range reports {
		n += report.Share
	}
	return n
}
