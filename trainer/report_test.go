package trainer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"pgregory.net/rapid"
)

// logged identifies the entry of a peer and a step in the log.
type logged struct {
	peer elastic.ID
	step int64
}

// listener is a peer with its reporter, and with the reports that it has made.
type listener struct {
	reporter
	id    elastic.ID
	last  outcome
	known map[logged]int // how many entries this peer has logged, by peer and step
	steps []int64        // steps that were reported to the user
}

// newListener returns a listener with steps of six samples.
func newListener(id elastic.ID) *listener {
	l := &listener{id: id, known: make(map[logged]int)}
	l.plan = plan{samples: 600, global: 6, micro: 1, perPass: 100, steps: 100}
	l.told = func(r StepReport) { l.steps = append(l.steps, r.Step) }
	l.digest = func(step int64) string { return fmt.Sprint("digest ", step) }
	l.emit = func(_ uint64, step int64, body event.Body) {
		s := body.(event.Step)
		if len(s.Microbatches) > 0 {
			l.known[logged{id, step}]++
		}
		for _, c := range s.OfLost {
			l.known[logged{elastic.ID(c.Peer), c.Step}]++
		}
	}
	return l
}

// commit makes a step the last committed step.
func (l *listener) commit(o outcome) {
	l.advance(l.last, o)
	l.last = o
}

// viewOfPeers returns a view of the peers, whose IDs are short.
func viewOfPeers(peers []*listener) (v elastic.View) {
	for _, l := range peers {
		v.Members = append(v.Members, elastic.Member{ID: l.id})
	}
	return v
}

// outcomeOfStep returns the outcome of a step in which each of up to six peers computed one microbatch.
func outcomeOfStep(step int64, peers []*listener) outcome {
	o := outcome{Step: step, Samples: 6, Peers: len(peers)}
	for i, l := range peers {
		o.Shares = append(o.Shares, share{l.id, [][2]int{{i, i + 1}}})
	}
	return o
}

// Peers die at any time: before a step is stable at any peer, when the step is stable at some peers, or later. The log has every
// contribution to each stable step, and each step is reported to the user once.
func TestReportsAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*listener
		for i := range rapid.IntRange(2, 6).Draw(t, "peers") {
			all = append(all, newListener(elastic.ID(fmt.Sprint("p", i))))
		}
		alive, want := slices.Clone(all), make(map[logged]bool)
		steps := rapid.Int64Range(1, 8).Draw(t, "steps")
		for step := int64(1); step <= steps; step++ {
			o := outcomeOfStep(step, alive)
			for _, s := range o.Shares {
				want[logged{s.Peer, step}] = true
			}
			for _, l := range alive {
				l.commit(o)
			}
			alive = alive[min(len(alive)-1, rapid.IntRange(0, 1).Draw(t, "die before the commit record")):]
			v := viewOfPeers(alive)
			heard := rapid.IntRange(1, len(alive)).Draw(t, "hear the commit record")
			for _, l := range alive[len(alive)-heard:] {
				l.stable(o, v, l.id, work{}, step == steps)
			}
			if heard < len(alive) { // the others receive another commit record, or have died
				alive = alive[min(len(alive)-heard, rapid.IntRange(0, 2).Draw(t, "die in the commit record")):]
				if len(alive) == heard && step < steps {
					continue // all remaining peers know that the step is stable: the next commit record belongs to the next step
				}
				v = viewOfPeers(alive)
				for _, l := range alive {
					l.stable(o, v, l.id, work{}, step == steps)
				}
			}
		}
		checkReports(t, all, alive, want)
	})
}

// checkReports checks that the log has all contributions, that each peer has logged its own parts once, and that each survivor
// has reported each step to its user once.
func checkReports(t *rapid.T, all, alive []*listener, want map[logged]bool) {
	log := make(map[logged]bool)
	for _, l := range all {
		for k, n := range l.known {
			if log[k] = true; k.peer == l.id && n != 1 {
				t.Fatalf("%s has logged its part of step %d %d times", l.id, k.step, n)
			}
		}
	}
	for k := range want {
		if !log[k] {
			t.Fatalf("the contribution of %s to step %d is not in the log", k.peer, k.step)
		}
	}
	for _, l := range alive {
		if !slices.IsSorted(l.steps) || len(slices.Compact(slices.Clone(l.steps))) != len(l.steps) || int64(len(l.steps)) != l.last.Step {
			t.Fatalf("%s has reported the steps %v of %d", l.id, l.steps, l.last.Step)
		}
	}
}

// If a peer does not learn that the last step is stable, another peer reports the first peer's part:
// no later step follows, whose report could name that part.
func TestTheLastStepIsReportedForThePeerThatHearsNothing(t *testing.T) {
	for n := 2; n <= 5; n++ {
		for deaf := range n {
			var all []*listener
			for i := range n {
				all = append(all, newListener(elastic.ID(fmt.Sprint("p", i))))
			}
			o := outcomeOfStep(1, all)
			for i, l := range all {
				if l.commit(o); i != deaf {
					l.stable(o, viewOfPeers(all), l.id, work{}, true)
				}
			}
			times := 0
			for _, l := range all {
				times += l.known[logged{all[deaf].id, 1}]
			}
			if times != 1 {
				t.Errorf("%d peers: the contribution of rank %d is in the log %d times", n, deaf, times)
			}
		}
	}
}

// When a peer is moved to a later state, it reports its last step once, if that step is older than
// the state.
func TestSupersededSteps(t *testing.T) {
	a, b := newListener("a"), newListener("b")
	a.commit(outcomeOfStep(1, []*listener{a, b}))
	a.superseded(a.last, "a", work{}, 1)
	if len(a.steps) != 0 {
		t.Errorf("reported %v though there is no later step", a.steps)
	}
	a.superseded(a.last, "c", work{}, 3)
	if len(a.steps) != 0 {
		t.Errorf("reported %v, to which it has not contributed as c", a.steps)
	}
	for range 2 {
		a.superseded(a.last, "a", work{}, 3)
	}
	if !slices.Equal(a.steps, []int64{1}) || a.known[logged{"a", 1}] != 1 || a.known[logged{"b", 1}] != 0 {
		t.Errorf("reported %v, log %v", a.steps, a.known)
	}
	// Peer b is gone by step 3. Peer a does not report b's part of step 1: b or another peer has reported that part before it
	// contributed to step 3, because step 2 is in between.
	a.commit(outcomeOfStep(3, []*listener{a}))
	a.stable(a.last, viewOfPeers([]*listener{a}), "a", work{}, false)
	if !slices.Equal(a.steps, []int64{1, 3}) || a.known[logged{"b", 1}] != 0 { // step 2 is in between
		t.Errorf("reported %v, log %v", a.steps, a.known)
	}
}

// If peers are gone after the last step was reported, it is reported again only if the report of a
// peer that is still there has not their parts.
func TestTheLastStepIsReportedOnce(t *testing.T) {
	for gone := 1; gone < 4; gone++ { // the last ranks of four
		var all []*listener
		lines := make(map[elastic.ID]int)
		for i := range 4 {
			l := newListener(elastic.ID(fmt.Sprint("p", i)))
			emit := l.emit
			l.emit = func(epoch uint64, step int64, body event.Body) {
				lines[l.id]++
				emit(epoch, step, body)
			}
			all = append(all, l)
		}
		o := outcomeOfStep(1, all)
		for _, view := range []elastic.View{viewOfPeers(all), viewOfPeers(all[:4-gone])} {
			for _, m := range view.Members {
				l := all[slices.IndexFunc(all, func(l *listener) bool { return l.id == m.ID })]
				l.commit(o)
				l.stable(o, view, l.id, work{}, true)
			}
		}
		again := 0
		for _, n := range lines {
			again += n - 1
		}
		if missing := gone - 1; (again > 0) != (missing > 0) || lines["p0"] > 2 {
			t.Errorf("%d peers are gone, %d parts are missing: %v lines", gone, missing, lines)
		}
	}
}
