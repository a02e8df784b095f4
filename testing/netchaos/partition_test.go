package netchaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// partition is a random fault of the network that lasts for a time.
type partition struct {
	name     string
	holes    []hole
	majority []int         // hosts that must continue to train; empty if there is no majority
	held     time.Duration // minimum time until the fault is healed
	short    bool          // the fault is healed so soon that it may have no effect
}

// newPartition draws a partition of n hosts. All kinds are equally likely.
func newPartition(r *rand.Rand, n int) partition {
	hosts := r.Perm(n)
	few := hosts[:1+r.IntN((n-1)/2)]
	rest := others(n, few...)
	held := 1500*time.Millisecond + time.Duration(r.IntN(2500))*time.Millisecond
	p := partition{majority: rest, held: held}
	switch r.IntN(7) {
	case 0:
		p.name, p.holes = "split", append(between(few, rest), between(rest, few)...)
	case 1:
		p.name, p.holes = "minority is not heard", between(few, rest)
	case 2:
		p.name, p.holes = "minority does not hear", between(rest, few)
	case 3: // the other hosts reach both hosts of the pair, and either of the two may be put out
		p.name, p.holes = "pair", []hole{{hosts[0], hosts[1]}, {hosts[1], hosts[0]}}
		p.majority = others(n)
	case 4:
		p.name, p.holes = "pair, one way", []hole{{hosts[0], hosts[1]}}
		p.majority = others(n)
	case 5: // no part has a majority
		a, b, c := hosts[:2], hosts[2:4], hosts[4:]
		p.name, p.majority = "three parts", nil
		for _, pair := range [][2][]int{{a, b}, {b, a}, {a, c}, {c, a}, {b, c}, {c, b}} {
			p.holes = append(p.holes, between(pair[0], pair[1])...)
		}
	case 6: // each direction between two hosts is cut at random, independently of the others
		p.name, p.majority, p.short = "short and random", nil, true
		p.held = time.Duration(50+r.IntN(1200)) * time.Millisecond
		for _, h := range append(between(hosts, hosts), between(hosts, hosts)...) {
			if h.from != h.to && r.IntN(3) == 0 && !slices.Contains(p.holes, h) {
				p.holes = append(p.holes, h)
			}
		}
	}
	return p
}

// between returns the holes from each host of one list to each host of another.
func between(from, to []int) []hole {
	var out []hole
	for _, a := range from {
		for _, b := range to {
			out = append(out, hole{a, b})
		}
	}
	return out
}

// Random partitions occur and heal, one after the other. No step has two results, a majority
// continues, and after each partition all hosts form one group again by themselves.
func TestPartition(t *testing.T) {
	parallel(t)
	seed := flagged[uint64]("seed")
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	j := newJob(t, newLab(t, groupSize), settings{pace: groupPace, flags: []string{"--quorum", "majority"}})
	j.startAll(t)
	counts, putOut := map[string]int{}, 0
	var worst time.Duration
	for run := range times(5, 200) {
		p := newPartition(r, groupSize)
		gone, healing := j.breakAndHeal(t, run, p)
		counts[p.name]++
		putOut += gone
		worst = max(worst, healing)
	}
	t.Logf("%v; %d peers were put out and came back, all together at most %d ms after healing", counts, putOut, worst.Milliseconds())
	j.finish(t)
}

// breakAndHeal makes one partition and heals it. It returns how many peers were put out, and the
// time from the healing until all hosts were in one view.
func (j *job) breakAndHeal(t *testing.T, run int, p partition) (gone int, healing time.Duration) {
	t.Helper()
	before := j.untilWhole(t, time.Now())
	step := j.steps(t, others(groupSize))
	at := time.Now()
	j.lab.cut(t, p.holes)
	what := fmt.Sprintf("%d, %s %v", run, p.name, p.holes)
	process.Pause(t, p.held)
	if len(p.majority) > 0 {
		process.Until(t, what+": steps of the majority", func() bool { return j.steps(t, p.majority) > step+5 })
	}
	during := j.steps(t, others(groupSize))
	lasted := time.Since(at)
	j.lab.heal(t)
	healed := time.Now()
	back := j.untilWhole(t, healed)
	for host := range back {
		if back[host] != before[host] {
			gone++
		}
	}
	healing = time.Since(healed)
	t.Logf("%s: %d steps in %d ms, %d put out, together %d ms after healing", what, during-step, lasted.Milliseconds(), gone, healing.Milliseconds())
	return gone, healing
}
