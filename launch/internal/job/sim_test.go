package job_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	flag.Int("seeds", 3000, "number of runs of the simulator")
	flag.Int("from", 0, "the seed of the first run")
	flag.Int("one", -1, "trace the run of one seed")
	flag.Bool("rewrite", false, "replace the outputs of the scripts")
	os.Exit(m.Run())
}

func number(name string) int { return flag.Lookup(name).Value.(flag.Getter).Get().(int) }

// kinds returns the kinds of faults, the mild ones first.
func kinds() []string {
	return []string{
		"kill", "kill", "slow kill", "term", "halt newcomer", "halt", "scale", "kill all", "kill", "term", "mistake", "spoil",
		"signal", "stop", "deaf", "silent", "admission", "admission", "scale", "fence", "fence", "kick", "quit",
	}
}

// planOf returns the plan of a seed.
func planOf(seed uint64) plan {
	w := &world{p: plan{seed: seed}}
	p := plan{
		seed: seed, peers: 1 + w.pick(4, 100), restarts: []int{0, 0, 2, 5}[w.pick(4, 101)],
		steps: 8 + w.pick(12, 102), boot: []int{4, 20, 60}[w.pick(3, 103)], programs: 1,
	}
	p.silent = w.pick(3, 115) == 0
	switch w.pick(4, 104) {
	case 0:
		p.joined, p.joinAt = 1+w.pick(2, 105), 10+w.pick(60, 106)
		p.peers = 1 + w.pick(2, 100)
	case 1:
		p.programs = 1 + w.pick(2, 107)
	}
	all := kinds()
	some := len(all) // many seeds have mild faults only
	if w.pick(2, 108) == 0 {
		some = []int{3, 4, 7}[w.pick(3, 109)]
	}
	for k := range w.pick(5, 110) {
		p.faults = append(p.faults, fault{
			at: w.pick(170, 111, k), pick: w.pick(60, 112, k), arg: w.pick(60, 113, k), kind: all[w.pick(some, 114, k)],
		})
	}
	return p
}

// shrink leaves out faults, peers and restarts as long as the violation stays.
func shrink(p plan, violation string) plan {
	smaller := []func(*plan){
		func(q *plan) { q.peers-- },
		func(q *plan) { q.restarts-- },
		func(q *plan) { q.joined-- },
		func(q *plan) { q.steps -= 2 },
		func(q *plan) { q.programs-- },
	}
	for i := range 4 {
		smaller = append(smaller, func(q *plan) {
			if i < len(q.faults) {
				q.faults = slices.Delete(slices.Clone(q.faults), i, i+1)
			}
		})
	}
	fits := func(q plan) bool {
		return q.peers > 0 && q.restarts >= 0 && q.joined >= 0 && q.steps > 1 && q.programs > 0 && (q.joined > 0) == (p.joined > 0)
	}
	size := func(q plan) int { return q.peers + q.restarts + q.joined + q.steps + q.programs + len(q.faults) }
	for again := true; again; {
		again = false
		for _, f := range smaller {
			q := p
			f(&q)
			if size(q) < size(p) && fits(q) && slices.Contains(run(q, nil), violation) {
				p, again = q, true
			}
		}
	}
	return p
}

// All invariants hold in each run. -one SEED traces one run, after its plan was shrunk.
func TestSimulation(t *testing.T) {
	if one := number("one"); one >= 0 {
		trace(t, uint64(one))
		return
	}
	classes := map[string]int{}
	for seed := number("from"); seed < number("from")+number("seeds"); seed++ {
		for _, v := range run(planOf(uint64(seed)), nil) {
			class, _, _ := strings.Cut(v, ":")
			if classes[class]++; classes[class] <= 2 {
				t.Errorf("seed %d: %s", seed, v)
			}
		}
	}
	if len(classes) > 0 {
		t.Logf("violations: %v", classes)
	}
}

// trace logs a run.
func trace(t *testing.T, seed uint64) {
	p := planOf(seed)
	if bad := run(p, nil); len(bad) > 0 {
		p = shrink(p, bad[0])
	}
	t.Logf("%+v", p)
	if bad := run(p, t.Logf); len(bad) > 0 {
		t.Errorf("%q", bad)
	}
}
