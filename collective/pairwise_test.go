package collective_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// choice is one row of a pairwise (all-pairs) test plan, whose factors are kind, algorithm,
// operation, type and ranks.
type choice struct {
	way
	op    string
	suite suite
	ranks int
}

// factors returns the factors by name, so that the factors of two choices can be compared.
func (c choice) factors() [5]string {
	return [5]string{c.kind, "by " + c.algorithm.String(), c.op, c.suite.typeName(), fmt.Sprint(c.ranks, " ranks")}
}

// pair is two factors that occur in one choice.
type pair [2]string

func (c choice) pairs() []pair {
	var all []pair
	f := c.factors()
	for i := range f {
		for j := range i {
			all = append(all, pair{f[j], f[i]})
		}
	}
	return all
}

// everything lists all possible choices for up to most ranks, without Auto.
func everything(most int) []choice {
	var all []choice
	add := func(s suite, op string, ws []way) {
		for _, w := range ws {
			for n := 1; n <= most; n++ {
				if w.algorithm != collective.Auto || isPoint(w.kind) {
					all = append(all, choice{w, op, s, n})
				}
			}
		}
	}
	for _, s := range suites() {
		add(s, moving, ways(carrying(), false))
		for _, op := range s.opNames() {
			add(s, op, ways(reducing(), s.prepare(op, 1, 0).ordered()))
		}
	}
	return all
}

// selection returns choices that cover every possible pair of factors. It is greedy: each
// choice adds the most uncovered pairs. The result is deterministic.
func selection(most int) []choice {
	all := everything(most)
	ids := make(map[pair]int)
	pairs := make([][]int, len(all)) // of each choice, as indices into open
	for i, c := range all {
		for _, p := range c.pairs() {
			if _, ok := ids[p]; !ok {
				ids[p] = len(ids)
			}
			pairs[i] = append(pairs[i], ids[p])
		}
	}
	open := make([]int, len(ids)) // 1 for a pair that chosen does not cover yet
	for i := range open {
		open[i] = 1
	}
	gain := func(i int) (sum int) {
		for _, p := range pairs[i] {
			sum += open[p]
		}
		return sum
	}
	var chosen []choice
	for {
		best := 0
		for i := range all {
			if gain(i) > gain(best) {
				best = i
			}
		}
		if gain(best) == 0 {
			return chosen
		}
		chosen = append(chosen, all[best])
		for _, p := range pairs[best] {
			open[p] = 0
		}
	}
}

// job returns the choice as a call with vectors of length elements in total.
func (c choice) job(i, length int) job {
	k := call{kind: c.kind, algorithm: c.algorithm, length: length,
		root: i * 5 % c.ranks, inPlace: i/2%2 == 1, async: i%2 == 1}
	if c.op == moving && c.kind != "broadcast" && !isPoint(c.kind) {
		k.length /= c.ranks // of a part
	}
	return job{c.suite.prepare(c.op, c.ranks, length), []call{k}}
}

// isPoint reports whether calls of a kind are point-to-point calls, which have no algorithms.
func isPoint(kind string) bool {
	return kind == "sendrecv" || kind == "exchange" || kind == "receiveany"
}

func TestSelection(t *testing.T) {
	met := make(map[pair]bool)
	chosen := selection(9)
	for _, c := range chosen {
		for _, p := range c.pairs() {
			met[p] = true
		}
	}
	for _, c := range everything(9) {
		for _, p := range c.pairs() {
			if !met[p] {
				t.Fatalf("%v never meet", p)
			}
		}
	}
	t.Logf("%d calls for %d pairs", len(chosen), len(met))
}

// long returns the length of vectors with many segments that exceed all caches; under the
// race detector it is shorter.
func long() int {
	if racing {
		return 100_000
	}
	return 1_000_000
}

// The selection with vectors of many segments, in memory and over p2p. Both runs are in one test
// because the inputs and the expected results cost more than the calls.
func TestSelectionOfLongVectors(t *testing.T) {
	t.Parallel()
	const most = 9
	chosen := selection(most)
	for n := 1; n <= most; n++ {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			var jobs []job
			for i, c := range chosen {
				if c.ranks == n {
					jobs = append(jobs, c.job(i, long()))
				}
			}
			t.Run("memory", func(t *testing.T) { runJobs(t, messages(n), collective.Options{}, jobs) })
			t.Run("p2p", func(t *testing.T) {
				cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error { return runAll(ctx, c, jobs) }, cluster.OverP2P())
			})
		})
	}
}
