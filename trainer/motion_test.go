package trainer

import (
	"math/rand/v2"
	"testing"

	"github.com/elrun/elrun/ring"
)

// motion simulates three minutes of steps of a job on six hosts with links of 200 Mbit/s. A step
// computes for 0.2 s and reduces 4 MiB. Every 20 s the slow pairs of hosts are drawn anew; the links of a
// slow pair have 20 Mbit/s. order returns the order of the ring for the next step, and after is called
// after each step. The result is the mean time of a step in seconds.
func motion(w *web, slowPairs int, seed uint64, order func() []int, after func()) float64 {
	const compute, bytes, end, period = 0.2, 4 << 20, 180.0, 20.0
	const fast, slow = 41_943, 419_430 // microseconds per MiB
	trace, n := rand.New(rand.NewPCG(seed, 99)), len(w.cost)
	clock, next, steps := 0.0, 0.0, 0
	for ; clock < end; steps++ {
		if clock >= next {
			next += period
			for _, row := range w.cost {
				for to := range row {
					row[to] = fast
				}
			}
			for range slowPairs {
				a := trace.IntN(n)
				b := (a + 1 + trace.IntN(n-1)) % n
				w.cost[a][b], w.cost[b][a] = slow, slow
			}
		}
		slowest, _ := ring.Bottleneck(w.cost, order())
		clock += compute + 2*float64(n-1)/float64(n)*bytes/(1<<20)*float64(slowest)/1e6
		after()
	}
	return clock / float64(steps)
}

// Links that become slow and recover all the time: the order of the link monitor is at least twice as
// fast as a fixed order, and takes at most a quarter longer than the best order at each moment
// (MLfabric, arXiv 1907.00434, moves transfers to the links that are fast at present).
func TestLinksInMotion(t *testing.T) {
	const hosts, bytes, seeds = 6, 4 << 20, 8
	for _, c := range []struct {
		slowPairs      int
		gain, ofOracle float64 // bounds
	}{{1, 1.5, 1.25}, {2, 2, 1.25}, {4, 2, 1.75}} {
		var fixed, monitored, oracle float64
		orders := 0
		for seed := range uint64(seeds) {
			random := rand.New(rand.NewPCG(seed, uint64(c.slowPairs)))
			newLinks := func() *web {
				w := newWeb(t, separateHosts(hosts), bytes, func(int, int) int64 { return 1 })
				w.noise = func() float64 { return 0.95 + 0.1*random.Float64() }
				return w
			}
			ranks := []int{0, 1, 2, 3, 4, 5}
			w := newLinks()
			fixed += motion(w, c.slowPairs, seed, func() []int { return ranks }, func() {}) / seeds
			w = newLinks()
			oracle += motion(w, c.slowPairs, seed, func() []int { return ring.Order(w.cost, ranks, nil) }, func() {}) / seeds
			w = newLinks()
			monitored += motion(w, c.slowPairs, seed, func() []int { return w.ranks[0].order }, w.step) / seeds
			orders += w.orders
		}
		t.Logf("%d slow pairs: a step takes %.3f s in the order of the ranks, %.3f s in the order of the link monitor (%.1f changes), %.3f s in the best order: %.2f times as fast, %.2f of the best",
			c.slowPairs, fixed, monitored, float64(orders)/seeds, oracle, fixed/monitored, monitored/oracle)
		if fixed < c.gain*monitored || monitored > c.ofOracle*oracle {
			t.Errorf("%d slow pairs: want at least %g times as fast, at most %g of the best", c.slowPairs, c.gain, c.ofOracle)
		}
	}
}
