package member_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/elrun/elrun/elastic/member"
)

// calmWorld returns a group of n without faults.
func calmWorld(n int) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(1, 1)), byID: make(map[member.ID]*node), cut: make(map[[2]*node]bool),
		slander: make(map[[2]*node]bool), checks: newChecks(), lag: 5, notice: 2 * tickUnits, most: 1 << 40,
	}
	w.first(n)
	return w
}

// A change costs O(n) messages (without the periodic Status messages), even if all members report
// it, and is known to all members within a few ticks.
func TestMessagesPerChange(t *testing.T) {
	for _, n := range []int{2, 3, 10, 50} {
		for name, change := range map[string]func(w *world){
			"join":  func(w *world) { w.join() },
			"leave": func(w *world) { w.leave() },
			"death": func(w *world) { w.crash(w.nodes[n-1]) },
		} {
			w := calmWorld(n)
			w.mode = certain
			if name == "death" {
				w.mode = majority
			}
			if n == 2 && name == "death" {
				continue // no majority
			}
			w.runUntil(5 * tickUnits)
			before, beats := w.messages, w.beats
			change(w)
			const ticks = 15
			w.runUntil(w.now + ticks*tickUnits)
			cost := w.messages - before - (w.beats - beats)
			// The bound covers Prepare, Promise, Accept, Accepted, Chain and Status, the requests
			// of a newcomer, and reports of members that noticed the change before the Prepare.
			if bound := 9*n + 8; cost > bound || w.failure != "" {
				t.Errorf("%s in a group of %d: %d messages, at most %d; %s", name, n, cost, bound, w.failure)
			}
			if got := w.nodes[0].m.View().Epoch; got < 2 {
				t.Errorf("%s in a group of %d: still in epoch %d after %d ticks", name, n, got, ticks)
			}
		}
	}
}

// A large group in which members join and die all the time decides every change. The figures are
// logged, and scripts/scale plots them; -scale sets the size.
func TestScale(t *testing.T) {
	n := flagged[int]("scale")
	w := calmWorld(n)
	w.loss, w.watch = 0.01, 3
	const every, rounds = 100, 10 // every is in ticks of 10 ms: one round a second
	var messages, beats, ticks []int
	for range rounds {
		victim := w.nodes[w.rng.IntN(len(w.nodes))]
		for !victim.alive {
			victim = w.nodes[w.rng.IntN(len(w.nodes))]
		}
		w.join()
		w.crash(victim)
		newcomer := w.nodes[len(w.nodes)-1]
		begun, before, beatsBefore := w.now, w.messages, w.beats
		for !w.allKnow(newcomer, victim) && w.now < begun+every*tickUnits {
			w.runUntil(w.now + tickUnits)
		}
		ticks = append(ticks, int((w.now-begun)/tickUnits))
		w.runUntil(begun + every*tickUnits)
		beats = append(beats, w.beats-beatsBefore)
		messages = append(messages, w.messages-before-beats[len(beats)-1])
	}
	w.runUntil(w.now + 50*tickUnits)
	if rest := w.checks.atRest(w); rest != "" || w.failure != "" {
		t.Error(fmt.Sprint(rest, w.failure))
	}
	if slices.Max(ticks) >= every {
		t.Errorf("a join and a death took %d ticks or more", every)
	}
	t.Logf("machine phase=change members=%d ms=%d messages=%d beats=%d", n, median(ticks)*10, median(messages), median(beats))
}

// allKnow reports whether every live member has a view that contains the first peer and not the
// second.
func (w *world) allKnow(with, without *node) bool {
	for _, n := range w.nodes {
		if n.inside() && (n.view.Rank(with.id) < 0 || n.view.Rank(without.id) >= 0) {
			return false
		}
	}
	return true
}

func median(v []int) int {
	slices.Sort(v)
	return v[len(v)/2]
}
