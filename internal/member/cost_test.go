package member_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/elrun/elrun/internal/member"
)

// calmWorld is a group of n without misfortunes.
func calmWorld(n int) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(1, 1)), byID: make(map[member.ID]*node), cut: make(map[[2]*node]bool),
		slander: make(map[[2]*node]bool), checks: newChecks(), lag: 5, notice: 2 * tickUnits, most: 1 << 40,
	}
	w.first(n)
	return w
}

// A change costs O(n) messages, beats apart, also if all report it, and is known in a
// few ticks.
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
			// Prepare, Promise, Accept, Accepted, Chain, Status; a joiner's questions, and
			// reports of those who noticed before they were asked.
			if bound := 9*n + 8; cost > bound || w.failure != "" {
				t.Errorf("%s in a group of %d: %d messages, at most %d; %s", name, n, cost, bound, w.failure)
			}
			if got := w.nodes[0].m.View().Epoch; got < 2 {
				t.Errorf("%s in a group of %d: still in epoch %d after %d ticks", name, n, got, ticks)
			}
		}
	}
}

// A large group in which one member joins and another dies all the time decides every
// change. The figures are logged; -scale sets the size.
func TestScale(t *testing.T) {
	n := flagged[int]("scale")
	w := calmWorld(n)
	w.loss, w.watch = 0.01, 3
	const every, rounds = 100, 10 // ticks of 10 ms: once a second
	for range rounds {
		w.join()
		w.crash(w.nodes[w.rng.IntN(len(w.nodes))])
		before, beats := w.messages, w.beats
		w.runUntil(w.now + every*tickUnits)
		t.Logf("%d messages and %d beats for one join and one death among %d", w.messages-before-(w.beats-beats), w.beats-beats, n)
	}
	w.runUntil(w.now + 50*tickUnits)
	if rest := w.checks.atRest(w); rest != "" || w.failure != "" {
		t.Error(fmt.Sprint(rest, w.failure))
	}
}
