package balsim

import (
	"slices"

	"github.com/elrun/elrun/loadbal"
)

// theft is the time that a theft takes the thief, in nanoseconds; mostThefts is the most thefts of a
// peer in a step.
const (
	theft      = 20_000
	mostThefts = 4
)

// Stealing returns what becomes of a run of t if peers steal within each step, as those of a host do: a
// peer that has begun all its microbatches but the last takes up to half of those that the peer with
// the longest rest has not begun. A peer knows the pace of another peer once this peer has computed a
// microbatch in the step; before, it takes the pace for that of the last step. The shares, and Best,
// are those of run.
func Stealing(t *Trace, run *Run) *Run {
	with := &Run{Shares: run.Shares, Best: run.Best}
	for s, shares := range run.Shares {
		crew := t.crew(s, shares)
		took, stolen := crew.work()
		for _, tau := range t.Tau {
			took = max(took, tau)
		}
		with.Took, with.Stolen = append(with.Took, took), append(with.Stolen, stolen)
	}
	return with
}

// worker is a peer in a step with stealing. It computes a range of microbatches one after the other,
// from begin on.
type worker struct {
	pace, before int64 // nanoseconds per microbatch in this step and in the last one
	begin        int64
	n            int // length of the range
	own          bool
	kept         int // microbatches put aside, which the worker computes at last
	thefts       int
	computed     bool // a microbatch in an earlier range
	done         bool
}

// crew has the workers of a step.
type crew []*worker

// crew returns the workers of a step, which have the given shares.
func (t *Trace) crew(step int, shares []int) (all crew) {
	noise := t.noise(step)
	for p, b := range shares {
		w := &worker{pace: t.Pace[step][p], before: t.Pace[max(0, step-1)][p], n: b, own: true}
		if t.Fixed != nil {
			w.begin = t.Fixed[p]
		}
		if noise != nil {
			w.pace += w.pace / 1000 * noise[p] / 1000
			w.begin += w.begin / 1000 * noise[p] / 1000
		}
		all = append(all, w)
	}
	return all
}

// work lets all workers compute and steal, and returns the time of the step and the number of stolen
// microbatches.
func (c crew) work() (took int64, stolen int) {
	for {
		var next *worker // the first that runs out of microbatches
		for _, w := range c {
			if !w.done && (next == nil || w.idle() < next.idle()) {
				next = w
			}
		}
		if next == nil {
			return took, stolen
		}
		now := next.idle()
		next.settle(now)
		n := c.steal(next, now)
		if stolen += n; n == 0 {
			next.done = true
			took = max(took, now+next.pace*int64(next.kept))
		}
	}
}

// idle returns when the worker looks for microbatches of others: before the last one of its share, and
// at the end of a range that it has stolen.
func (w *worker) idle() int64 {
	n := w.n
	if w.own {
		n = max(0, n-1)
	}
	return w.begin + w.pace*int64(n)
}

// settle ends the range of the worker.
func (w *worker) settle(now int64) {
	if w.own {
		w.kept = min(1, w.n)
	}
	w.computed = w.computed || w.n > w.kept || w.n > 0 && !w.own
	w.begin, w.n, w.own = now, 0, false
}

// begun returns the number of microbatches of the range that the worker has begun.
func (w *worker) begun(now int64) int {
	return min(w.n, int(max(0, now-w.begin)/w.pace)+1)
}

// believed returns the pace that others know of.
func (w *worker) believed(now int64) int64 {
	if w.computed || now >= w.begin+w.pace {
		return w.pace
	}
	return max(w.before, now-w.begin)
}

// rest returns how long others believe that the worker still computes.
func (w *worker) rest(now int64) int64 {
	begun := w.begun(now)
	under := int64(0)
	if begun > 0 {
		under = max(0, w.begin+w.believed(now)*int64(begun)-now)
	}
	return under + w.believed(now)*int64(w.n-begun+w.kept)
}

// steal lets the thief take microbatches of the worker with the longest rest, and returns their
// number.
func (c crew) steal(thief *worker, now int64) (n int) {
	var victim *worker
	longest := int64(0)
	for _, w := range c {
		if rest := w.rest(now); w != thief && !w.done && w.n > w.begun(now) && rest > longest {
			victim, longest = w, rest
		}
	}
	if victim == nil || thief.thefts == mostThefts {
		return 0
	}
	own, other := thief.believed(now), victim.believed(now)
	begun := victim.begun(now)
	half := (victim.n - begun + 1) / 2
	end := func(n int) int64 { return max(own*int64(thief.kept+n)+theft, longest-other*int64(n)) }
	n = min(half, max(0, int((longest-own*int64(thief.kept)-theft)/(own+other))))
	if n < half && end(n+1) < end(n) {
		n++
	}
	if n == 0 || longest-end(n) <= own/2+theft {
		return 0
	}
	if victim.n -= n; victim.own && victim.n == begun { // its last one is under way, and none is put aside
		victim.own = false
	}
	thief.begin, thief.n, thief.thefts = now+theft, n, thief.thefts+1
	return n
}

// Coded returns what becomes of a run of t with a gradient code for one straggler (s = 1): the peers,
// an even number, are in pairs, both compute the shares of both, and the first result counts. If
// foresight is false, all shares are equal. Otherwise the pairs have the best whole shares for the
// faster peer of each. A code that waits for any n-1 of n results is not faster: then each step takes as
// long as the second slowest peer. Best is that of run.
func Coded(t *Trace, run *Run, foresight bool) *Run {
	with := &Run{Best: run.Best}
	for s := range t.Pace {
		var shares []int
		for _, b := range t.pairs(s, foresight) {
			shares = append(shares, b, b)
		}
		took := int64(0)
		for pair := range slices.Chunk(t.times(s, shares, t.noise(s)), 2) {
			took = max(took, slices.Min(pair))
		}
		with.Shares, with.Took = append(with.Shares, shares), append(with.Took, took)
	}
	return with
}

// pairs returns the number of microbatches of each pair of peers in a step.
func (t *Trace) pairs(step int, foresight bool) []int {
	var fast []loadbal.Cost
	for pair := range slices.Chunk(t.costs(step), 2) {
		if !foresight {
			pair = []loadbal.Cost{{Each: base, Min: 1}}
		}
		fast = append(fast, slices.MinFunc(pair, func(x, y loadbal.Cost) int { return int(x.Time(2*perPeer) - y.Time(2*perPeer)) }))
	}
	return loadbal.Optimum(fast, t.Microbatches)
}
