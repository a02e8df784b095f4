package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/elrun/elrun/loadbal"
)

// TestBalance measures the benefit of balancing with real processes. The peers sleep to have set
// speeds, except in the row with quotas, so the number of cores does not matter:
//
//	go test -count=1 -timeout=1h -v -run TestBalance ./testing/e2e -long
//
// Other load on the machine affects all times. So the short form checks only properties that do not
// depend on times (trained.check), and that slow peers get smaller shares. The long form checks
// measurements. It runs at a higher priority if permitted, and tries each row up to three times.
func TestBalance(t *testing.T) {
	tr := newTrial(t)
	t.Run("unequal", paced(tr.unequal))
	t.Run("step", paced(tr.stepChange))
	t.Run("homogeneous", paced(tr.homogeneous))
	t.Run("fixed", paced(tr.fixed))
	t.Run("exact", tr.exact)
	t.Run("quotas", row(tr.quotas))
}

// paced returns the test of a row whose peers sleep most of the time.
func paced(try func(t *testing.T) error) func(t *testing.T) {
	return func(t *testing.T) {
		if long() {
			goAhead(t)
		}
		row(try)(t)
	}
}

// row returns a test that passes if one try passes, of three in the long form.
func row(try func(t *testing.T) error) func(t *testing.T) {
	return func(t *testing.T) {
		for i := range pick(1, 3) {
			err := try(t)
			if err == nil {
				return
			}
			t.Logf("try %d: %v", i+1, err)
		}
		t.Error("no try was good enough")
	}
}

// pacedTask returns the arguments of a program whose peers take a set time of 0.8 ms for a
// microbatch.
func pacedTask(steps int, args ...string) []string {
	return slices.Concat([]string{"--global-batch", strconv.Itoa(pick(1024, fullBatch)), "--microbatch", "8", "--pace", "100us",
		"--steps", strconv.Itoa(steps)}, args)
}

const (
	// fullBatch is the number of samples in a step in the long form.
	fullBatch = 4096
	// settled is the first step, counted from 0, at which shares should have settled.
	settled = 5
)

// One of four peers has a quarter of the speed of the others. With balancing, the speed of the job
// is nearly the sum of their speeds. With equal shares the job would be at most as fast as a job of
// four slow peers. The largest possible gain is the mean of the speeds divided by the lowest: 3.25.
func (tr *trial) unequal(t *testing.T) error {
	balanced := tr.train(t, 4, pacedTask(pick(30, 120), "--slow", "3:4")...)
	equal := tr.train(t, 4, pacedTask(pick(5, 30), "--slow", "3:4", "--balance", "equal")...)
	if !long() {
		return balanced.leans(t, 3, settled, 30)
	}
	fast := tr.train(t, 1, pacedTask(20)...).rate(0)
	slow := tr.train(t, 1, pacedTask(10, "--slow", "0:4")...).rate(0)
	sum := 3*fast + slow
	whole, median := balanced.rate(settled)/sum, 1000*fullBatch/balanced.stepMS(settled)/sum
	times, bound := balanced.rate(settled)/equal.rate(0), sum/4/slow
	t.Logf("alone %.0f and %.0f samples/s, the sum for four %.0f; together %.0f: %.1f %%, in the median step of %.1f ms %.1f %%; shares %v",
		fast, slow, sum, balanced.rate(settled), 100*whole, balanced.stepMS(settled), 100*median, balanced.shares(settled))
	t.Logf("with equal shares %.0f samples/s: %.2f times, in the median step %.2f times, bound %.2f",
		equal.rate(0), times, equal.stepMS(0)/balanced.stepMS(settled), bound)
	if whole < 0.97 || times < 3 {
		return fmt.Errorf("%.1f %% of the sum of the speeds, and %.2f times as fast as with equal shares", 100*whole, times)
	}
	return nil
}

// change describes a peer that is slower for some steps.
type change struct {
	factor          int64
	first, last, of int // steps, counted from 1
}

// costs returns the costs of the four peers in the given step; the first step is 0.
func (c change) costs(step int) []loadbal.Cost {
	costs := slices.Repeat([]loadbal.Cost{{Each: 1000}}, 4)
	if step+1 >= c.first && step+1 <= c.last {
		costs[3].Each *= c.factor
	}
	return costs
}

// One peer is four times slower for some steps. Shares come near the best after the peer becomes
// slow, and after it recovers.
func (tr *trial) stepChange(t *testing.T) error {
	c := pick(change{4, 20, 45, 60}, change{4, 50, 120, 180})
	r := tr.train(t, 4, pacedTask(c.of, "--slow", fmt.Sprintf("3:%d@%d-%d", c.factor, c.first, c.last))...)
	for _, s := range r.told {
		t.Logf("shares %v, %s", s.New, s.Reason)
	}
	if !long() {
		return r.leans(t, 3, c.first+1, c.last)
	}
	return errors.Join(r.settles(t, c, c.first-1, c.last, 5), r.settles(t, c, c.last, c.of, 10))
}

// settles checks the steps from index from to index to: after at most within steps shares come near
// the best, and stay near the best. Shares are near the best if the spread of the peers'
// undisturbed times exceeds the spread with the best whole shares by at most 5 points.
func (r *trained) settles(t *testing.T, c change, from, to, within int) error {
	t.Helper()
	const near = 5.0
	after := -1
	var byShares, byTimes []float64
	for _, i := range r.full(from) {
		if i >= to {
			break
		}
		n := r.steps[0][i].Samples / 8
		shares := excess(c.costs(i), n, taking(c.costs(i), r.shares(i)))
		if after < 0 && shares > near {
			continue
		}
		if after < 0 {
			after = i - from
		}
		byShares, byTimes = append(byShares, shares), append(byTimes, excess(c.costs(i), n, r.times(i)))
	}
	if after < 0 {
		return fmt.Errorf("from step %d on shares never came near the best", from+1)
	}
	t.Logf("step %d: near the best after %d steps, then in %d of %d by the shares, in %d by measured times, whose spread is %.1f points (median) above the best shares'",
		from+1, after, below(byShares, near), len(byShares), below(byTimes, near), median(byTimes))
	if after > within || median(byShares) > near || median(byTimes) > near {
		return fmt.Errorf("from step %d on shares came near the best after %d steps, and were there in %d of %d from then on", from+1, after, below(byShares, near), len(byShares))
	}
	return nil
}

// below returns how many values are at most bound.
func below(all []float64, bound float64) (n int) {
	for _, v := range all {
		if v <= bound {
			n++
		}
	}
	return n
}

// Equal peers lose at most 1 % of a step by balancing. Runs with and without balancing alternate,
// so that other load on the machine affects both kinds. The test compares the fastest run of each
// kind.
func (tr *trial) homogeneous(t *testing.T) error {
	if !long() {
		tr.train(t, 4, pacedTask(20)...)
		return nil
	}
	var balanced, equal []float64
	changes, steps, seen := 0, 0, []int(nil)
	for range 5 {
		r := tr.train(t, 4, pacedTask(200)...)
		changes, steps = changes+r.changes(settled), steps+len(r.full(settled))
		for _, i := range r.full(settled) {
			seen = append(seen, r.shares(i)...)
		}
		balanced = append(balanced, r.stepMS(settled))
		equal = append(equal, tr.train(t, 4, pacedTask(200, "--balance", "equal")...).stepMS(settled))
	}
	slices.Sort(seen)
	cost, least, most := slices.Min(balanced)/slices.Min(equal)-1, seen[len(seen)/100], seen[len(seen)*99/100]
	t.Logf("median steps of %.2f ms with balancing and %.2f ms without: %+.2f %% in the median, %+.2f %% in the best runs; shares changed in %d of %d steps, 98 %% are from %d to %d",
		balanced, equal, 100*(median(balanced)/median(equal)-1), 100*cost, changes, steps, least, most)
	if even := fullBatch / 8 / 4; cost > 0.01 || changes > steps/20 || least*10 < even*9 || most*10 > even*11 {
		return fmt.Errorf("balancing costs %.1f %% of a step, changed shares in %d of %d steps, to %d and %d", 100*cost, changes, steps, least, most)
	}
	return nil
}

// In exact mode the hash of the weights is the same with any number of peers, with slow peers, with balancing and without.
func (tr *trial) exact(t *testing.T) {
	steps := strconv.Itoa(pick(15, 200))
	want := ""
	for _, c := range []struct {
		peers int
		args  []string
	}{
		{1, nil},
		{4, []string{"--balance", "equal"}},
		{4, []string{"--slow", "3:4"}},
		{4, []string{"--slow", "0:3,2:2@5-12"}},
		{3, []string{"--slow", "1:4", "--balance", "lbb"}},
	} {
		r := tr.train(t, c.peers, append([]string{"--exact", "--global-batch", "1024", "--microbatch", "8", "--steps", steps}, c.args...)...)
		if want == "" {
			want = r.sha
		}
		t.Logf("%d peers %v: at last shares %v, %s", c.peers, c.args, r.shares(len(r.steps[0])-1), r.sha)
		if r.sha == "" || r.sha != want {
			t.Errorf("%d peers %v: weights %q, want %q", c.peers, c.args, r.sha, want)
		}
	}
}
