package trainer

import (
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer/internal/ledger"
	"pgregory.net/rapid"
)

// fresh agrees with an independent implementation, which stores every requested microbatch by step
// and drops the entries of finished steps.
func TestFresh(t *testing.T) {
	p := newPlan(Config{Samples: 90, GlobalBatch: 40, Microbatch: 3, Steps: 50, Seed: 2})
	rapid.Check(t, func(t *rapid.T) {
		var asked []need
		known := make(map[int64]map[int]bool)
		for step := int64(1); step < 20; step += int64(rapid.IntRange(0, 2).Draw(t, "forward")) {
			var needs []need
			var want []int
			still := make(map[int64]map[int]bool)
			for s := step; s <= step+1; s++ {
				n := need{p.step(s), ledger.NewSet(p.step(s).microbatches)}
				if still[s] = known[s]; still[s] == nil {
					still[s] = make(map[int]bool)
				}
				for _, k := range slices.Sorted(slices.Values(rapid.SliceOfN(rapid.IntRange(0, n.plan.microbatches-1), 0, 9).Draw(t, "share"))) {
					n.micros.Add(k)
					if !still[s][k] {
						want = n.plan.appendSamples(want, k)
					}
					still[s][k] = true
				}
				needs = append(needs, n)
			}
			known = still
			var got []int
			var missing []need
			missing, asked = fresh(needs, asked)
			for _, n := range missing {
				got = append(got, slices.Concat(n.samples()...)...)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("step %d: samples %v, want %v", step, got, want)
			}
			if len(asked) != 2 {
				t.Fatalf("step %d: remembers %d steps", step, len(asked))
			}
			if rapid.IntRange(0, 5).Draw(t, "enough") == 0 {
				return
			}
		}
	})
}

// want replaces a list that the prefetcher has not taken yet, and does not block.
func TestWantReplaces(t *testing.T) {
	a := prefetcher{box: make(chan []need, 1)}
	for step := range int64(3) {
		a.want([]need{{plan: stepPlan{step: step}}})
	}
	if got := <-a.box; len(got) != 1 || got[0].plan.step != 2 {
		t.Errorf("the box holds %+v", got)
	}
}
