package rendezvous

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestOrder(t *testing.T) {
	in := []candidate{{"m-0", "b"}, {"m-1", "a"}, {"m-1", "b"}, {"m-9", "a"}, {"m-10", "a"}}
	for i, a := range in {
		for j, b := range in {
			if got := a.compare(b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%v and %v: %d", a, b, got)
			}
		}
	}
}

func TestDecide(t *testing.T) {
	self := candidate{"m-1", "x"}
	other := func(name string, s stage) addressedAnswer {
		return addressedAnswer{answer: answer{From: candidate{name, "y"}, Stage: s}}
	}
	silent := []unreachableAddr{{netip.MustParseAddr("192.0.2.1"), errors.New("timed out")}}
	r := rules{need: 2, patience: time.Minute}
	for name, c := range map[string]struct {
		look   survey
		waited time.Duration
		want   decision
		why    string
	}{
		"alone":                 {survey{}, 0, wait, "1 of the 2"},
		"alone for long":        {survey{}, time.Minute, claim, ""},
		"enough":                {survey{answers: []addressedAnswer{other("m-2", seeking)}}, 0, claim, ""},
		"not the lowest":        {survey{answers: []addressedAnswer{other("m-0", seeking), other("m-2", seeking)}}, 0, wait, "waiting for m-0 to start"},
		"one has the job":       {survey{answers: []addressedAnswer{other("m-2", running)}}, 0, join, ""},
		"no DNS, but a visitor": {survey{err: errors.New("down"), answers: []addressedAnswer{other("m-2", running)}}, 0, join, ""},
		"no DNS":                {survey{err: errors.New("down")}, time.Hour, wait, "no other launcher is known yet: down"},
		"one is silent":         {survey{answers: []addressedAnswer{other("m-2", seeking)}, unreachable: silent}, time.Hour, wait, "192.0.2.1 may run the job"},
		"silent, but not all":   {survey{answers: []addressedAnswer{other("m-2", running)}, unreachable: silent}, 0, join, ""},
		"the end":               {survey{answers: []addressedAnswer{other("m-0", running), other("m-2", finished)}}, 0, end, "finished"},
	} {
		got, why := r.decide(self, c.look, c.waited)
		if got != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %v %q, want %v %q", name, got, why, c.want, c.why)
		}
	}
}

func TestGrant(t *testing.T) {
	now := time.Unix(1000, 0)
	at := netip.MustParseAddr("192.0.2.1")
	low, self, high := candidate{"m-0", "a"}, candidate{"m-1", "a"}, candidate{"m-2", "a"}
	b := ballot{self: self, stage: seeking}
	grant := func(c candidate, want bool) {
		t.Helper()
		if got := b.grant(c, at, now); got != want {
			t.Errorf("%v: %v", c, got)
		}
	}
	grant(high, false) // self comes before high
	grant(low, true)
	grant(low, true)
	grant(self, false) // low has the grant
	b.revise(survey{}, now)
	grant(candidate{"m-0", "b"}, false)
	now = now.Add(2 * lease)
	b.revise(survey{unreachable: []unreachableAddr{{addr: at}}}, now)
	grant(self, false) // low may have started the job
	b.revise(survey{answers: []addressedAnswer{{answer{From: low, Stage: running}, at}}}, now)
	grant(self, false) // low has started the job
	b.revise(survey{answers: []addressedAnswer{{answer{From: low, Stage: seeking}, at}}}, now)
	grant(self, true)
	grant(low, false)
	b.withdraw()
	grant(low, true)
	b.revise(survey{}, now.Add(lease)) // low has ended without starting the job
	grant(self, true)
	b.stage = running
	grant(self, false)
}

// world simulates launchers. The DNS shows each launcher any subset of the other launchers.
// Questions and answers take time, so that claims overlap.
type world struct {
	*rand.Rand
	now   time.Time
	rules rules
	all   []*launcher
}

// launcher is a simulated launcher. It performs the steps of Seek one at a time.
type launcher struct {
	ballot
	found   []int // launchers that this survey asks
	answers []addressedAnswer
	asked   int // how many launchers in found were asked, first for their stages and then for their grants
	claims  bool
	begun   time.Time
	starts  bool
	addr    netip.Addr
}

// step performs one step of launcher l: it asks another launcher, or decides.
func (w *world) step(l *launcher) {
	w.now = w.now.Add(time.Duration(w.Int64N(int64(lease) / 20)))
	switch {
	case l.stage != seeking:
	case l.asked < len(l.found) && !l.claims:
		o := w.all[l.found[l.asked]]
		l.answers = append(l.answers, addressedAnswer{answer{From: o.self, Stage: o.stage}, o.addr})
		l.asked++
	case l.asked < len(l.found):
		l.asked++
		if !w.all[l.found[l.asked-1]].grant(l.self, l.addr, w.now) {
			l.withdraw()
			w.look(l)
		}
	case l.claims:
		if w.now.Sub(l.begun) <= lease/2 {
			l.stage, l.starts = running, true
			return
		}
		l.withdraw()
		w.look(l)
	default:
		w.decide(l)
	}
}

// look begins a survey of the launchers that the DNS shows to l.
func (w *world) look(l *launcher) {
	l.found, l.answers, l.asked, l.claims, l.begun = nil, nil, 0, false, w.now
	for i, o := range w.all {
		if o != l && (w.IntN(4) > 0 || o.addr == l.at) {
			l.found = append(l.found, i)
		}
	}
}

// decide ends the survey of l.
func (w *world) decide(l *launcher) {
	l.revise(survey{answers: l.answers}, l.begun)
	do, _ := w.rules.decide(l.self, survey{answers: l.answers}, 0)
	switch {
	case do == join:
		l.stage = running
	case do == claim && l.grant(l.self, netip.Addr{}, w.now):
		l.claims, l.asked, l.begun = true, 0, w.now
	default:
		w.look(l)
	}
}

// TestOneJob checks safety and liveness, if more than half of all launchers are needed for a start.
// Whatever the DNS shows to each launcher, at most one launcher starts the job, and in most
// simulations one does.
func TestOneJob(t *testing.T) {
	started := 0
	for seed := range uint64(3000) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0)}
		n := 1 + w.IntN(6)
		w.rules = rules{need: n/2 + 1, patience: time.Hour}
		for i := range n {
			w.all = append(w.all, &launcher{ballot: ballot{self: candidate{fmt.Sprint("m-", i), "x"}, stage: seeking}, addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})})
		}
		for range 400 * n {
			w.step(w.all[w.IntN(n)])
		}
		starts := 0
		for _, l := range w.all {
			if l.starts {
				starts++
			}
		}
		if starts > 1 {
			t.Fatalf("seed %d: %d of %d launchers started the job", seed, starts, n)
		}
		started += starts
	}
	if started < 2000 {
		t.Errorf("of 3000 worlds %d had a job in the end", started)
	}
}
