package member_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/elrun/elrun/elastic/member"
)

// The flags of this package's tests:
//
//	go test ./elastic/member -seeds=50000           many runs of the simulator
//	go test ./elastic/member -run Simulate -seed=7  one run with its trace
//	go test ./elastic/member -run Scripts -rewrite  accept what the scripts print
func TestMain(m *testing.M) {
	flag.Int("seeds", 1000, "number of runs of the simulator")
	flag.Uint64("seed", 0, "run this seed only and print its trace")
	flag.Int("scale", 100, "members of the large group")
	flag.Bool("rewrite", false, "write what the scripts print into testdata")
	flag.Bool("planted", false, "run the planted bugs")
	flag.Parse()
	os.Exit(m.Run())
}

// flagged returns the value of a flag of TestMain.
func flagged[T any](name string) T {
	return flag.Lookup(name).Value.(flag.Getter).Get().(T)
}

// In the run of every seed the invariants hold at all times, and in the end the group is at rest.
func TestSimulate(t *testing.T) {
	if seed := flagged[uint64]("seed"); seed != 0 {
		if failure := replay(t, seed); failure != "" {
			t.Errorf("seed %d: %s", seed, failure)
		}
		return
	}
	seeds := uint64(flagged[int]("seeds"))
	var at, failed, messages atomic.Uint64
	failed.Store(seeds + 1)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for s := at.Add(1); s < failed.Load() && s <= seeds; s = at.Add(1) {
				failure, n := simulate(s, nil)
				messages.Add(uint64(n))
				for f := failed.Load(); failure != "" && s < f && !failed.CompareAndSwap(f, s); f = failed.Load() {
				}
			}
		})
	}
	all.Wait()
	if f := failed.Load(); f <= seeds {
		t.Errorf("seed %d: %s", f, replay(t, f))
		return
	}
	t.Logf("%d seeds, %d messages", seeds, messages.Load())
}

// Of two proposers that suspect each other although each receives the other's ballots, one succeeds
// in the end, with and without lost messages, and puts out the other.
func TestDuelingProposers(t *testing.T) {
	for _, lag := range []unit{1, tickUnits, 4 * tickUnits} {
		for _, loss := range []float64{0, 0.2} {
			for seed := range 20 {
				w := calmWorld(3 + seed%3)
				w.rng, w.most, w.lag, w.loss = rand.New(rand.NewPCG(uint64(seed), 0)), maxMessages, lag, loss
				a, b := w.nodes[0], w.nodes[1]
				w.slander[[2]*node{a, b}], w.slander[[2]*node{b, a}] = true, true
				w.detectAll()
				w.runUntil(settleTicks * tickUnits)
				if why := cmp.Or(w.failure, w.checks.atRest(w)); why != "" {
					t.Errorf("lag %d, loss %v, seed %d: %s", lag, loss, seed, why)
				}
			}
		}
	}
}

// Over links whose delay is up to many times Config.Patience, members that all request a view at once get it. Each proposes before
// it hears of the others' ballots, so they must wait longer and longer for each other.
func TestProposersOverSlowLinks(t *testing.T) {
	for _, delay := range []unit{5, 15, 30, 50, 100} { // in ticks
		for _, loss := range []float64{0, 0.05} {
			for seed := range 40 {
				w := calmWorld(2 + seed%4)
				w.rng, w.delay, w.lag, w.loss = rand.New(rand.NewPCG(uint64(seed), 0)), delay*tickUnits, delay*tickUnits/5, loss
				for _, n := range w.nodes {
					w.after(w.upTo(2*delay*tickUnits), func() { w.step(n, member.Renew{Epoch: n.view.Epoch}) })
				}
				w.runUntil(delay * tickUnits) // some have asked
				first := w.nodes[0].view.Epoch
				w.runUntil(max(settleTicks, 80*delay) * tickUnits)
				for _, n := range w.nodes {
					if w.failure != "" || n.view.Epoch <= first {
						t.Errorf("delay %d ticks, loss %v, %d members, seed %d: %s is still in epoch %d %s", delay, loss, len(w.nodes), seed, n.id, n.view.Epoch, w.failure)
						break
					}
				}
			}
		}
	}
}

// replay runs a seed again and logs the last part of its trace.
func replay(t *testing.T, seed uint64) string {
	const last = 400
	var lines []string
	failure, _ := simulate(seed, func(format string, args ...any) {
		lines = append(lines, fmt.Sprintf(format, args...))
	})
	if cut := len(lines) - last; cut > 0 && flagged[uint64]("seed") == 0 {
		lines = append([]string{fmt.Sprintf("(%d lines; all with -seed=%d)", cut, seed)}, lines[cut:]...)
	}
	t.Log("\n" + strings.Join(lines, "\n"))
	return failure
}
