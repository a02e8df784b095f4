package trainer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Each pass has every sample once, for all sizes. All steps of a pass except the last have GlobalBatch samples, and all
// microbatches of a step except the last are full.
func TestPlanCoversEachPassOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Samples: rapid.IntRange(1, 200).Draw(t, "samples"), GlobalBatch: rapid.IntRange(1, 250).Draw(t, "global"),
			Microbatch: rapid.IntRange(1, 40).Draw(t, "micro"), Passes: rapid.IntRange(1, 3).Draw(t, "passes"), Seed: 5}
		p := newPlan(c)
		step := int64(0)
		for range c.Passes {
			var seen []int
			for len(seen) < c.Samples {
				step++
				seen = append(seen, samplesOf(t, c, p.step(step), c.Samples-len(seen))...)
			}
			slices.Sort(seen)
			if len(seen) != c.Samples || len(slices.Compact(seen)) != c.Samples {
				t.Fatalf("pass ending at step %d has %d samples of %d", step, len(seen), c.Samples)
			}
		}
		if step != p.steps {
			t.Fatalf("%d passes took %d steps, planned %d", c.Passes, step, p.steps)
		}
	})
}

// samplesOf lists the samples of a step and checks its sizes. left is the number of samples that remain in the pass.
func samplesOf(t *rapid.T, c Config, s stepPlan, left int) []int {
	var all []int
	for k := range s.microbatches {
		part := s.appendSamples(nil, k)
		if len(part) != c.Microbatch && k != s.microbatches-1 || len(part) == 0 {
			t.Fatalf("step %d: microbatch %d of %d has %d samples", s.step, k, s.microbatches, len(part))
		}
		all = append(all, part...)
	}
	if want := min(c.GlobalBatch, left); len(all) != want {
		t.Fatalf("step %d has %d samples, want %d", s.step, len(all), want)
	}
	return all
}

func TestPlanOfMNIST(t *testing.T) {
	p := newPlan(Config{Samples: 60000, GlobalBatch: 512, Microbatch: 16, Passes: 3})
	last := p.step(118)
	if c := (Config{Samples: 60000, GlobalBatch: 512, Passes: 3}); c.TotalSteps() != 354 || (Config{Steps: 7}).TotalSteps() != 7 {
		t.Errorf("total steps of 3 passes: %d, want 354", c.TotalSteps())
	}
	if p.perPass != 118 || p.steps != 354 || last.end-last.first != 96 || last.microbatches != 6 {
		t.Errorf("plan %+v, last step of the first pass has %d samples in %d microbatches", p, last.end-last.first, last.microbatches)
	}
	again := p.step(119)
	if again.first != 0 || again.order == last.order {
		t.Errorf("step 119 begins at %d, in the order of the first pass: %t", again.first, again.order == last.order)
	}
}

func TestStepsCountsAcrossPasses(t *testing.T) {
	p := newPlan(Config{Samples: 10, GlobalBatch: 4, Microbatch: 3, Steps: 7})
	var sizes []int
	for s := int64(1); s <= p.steps; s++ {
		sizes = append(sizes, p.step(s).end-p.step(s).first)
	}
	if want := []int{4, 4, 2, 4, 4, 2, 4}; !slices.Equal(sizes, want) {
		t.Errorf("steps have %v samples, want %v", sizes, want)
	}
}

func TestSamplesInRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlan(Config{Samples: 103, GlobalBatch: 50, Microbatch: rapid.IntRange(1, 60).Draw(t, "micro"), Passes: 1}).step(rapid.Int64Range(1, 3).Draw(t, "step"))
		held, want := microbatches(p.microbatches), 0
		for k := range p.microbatches {
			if rapid.Bool().Draw(t, "held") {
				held.Add(k)
				want += len(p.appendSamples(nil, k))
			}
		}
		if got := p.samplesIn(held.Ranges()); got != want {
			t.Fatalf("%d samples in %v, want %d", got, held.Ranges(), want)
		}
	})
}
