package growth

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawnRule draws a rule.
func drawnRule(t *rapid.T) Rule {
	first := rapid.IntRange(1, 50).Draw(t, "first")
	return Rule{First: first, Max: first + rapid.IntRange(1, 300).Draw(t, "more"), Rate: rapid.SampledFrom([]string{Linear, AdaScale, Root}).Draw(t, "rate"),
		Efficiency: rapid.Float64Range(0.05, 0.95).Draw(t, "efficiency"), Every: rapid.Int64Range(1, 6).Draw(t, "every")}
}

// drawnNoise draws averages with a noise scale between none and the most.
func drawnNoise(t *rapid.T) Averages {
	return Averages{rapid.Float64Range(-1, 100).Draw(t, "trace"), rapid.Float64Range(-1, 10).Draw(t, "signal"), rapid.Float64Range(1, 100).Draw(t, "batch")}
}

// The changes are those of a twin that knows the batch of each step, and every state passes the check of a newcomer, also after
// its way through JSON.
func TestGrowthIsThatOfTheTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawnRule(t)
		var s State
		batches := []int{r.First, r.First, r.First} // by step; the batches of the next two steps are known
		for step := int64(1); step < 60; step++ {
			noise := drawnNoise(t)
			before := slices.Clone(s.Changes)
			kept := s
			s = r.After(s, step, noise)
			if !slices.Equal(kept.Changes, before) {
				t.Fatal("a decision has changed the state before it")
			}
			batch := batches[step+1]
			held := int64(0) // steps with this batch before the step of the decision
			for i := step + 1; i > 0 && batches[i] == batch; i-- {
				held++
			}
			next := min(2*batch, r.Max)
			scale := noise.Scale()
			if next > batch && held >= r.Every && scale > 0 && scale+float64(r.First) >= r.Efficiency*(scale+float64(next)) {
				batch = next
			}
			batches = append(batches, batch)
			w := Walk{1000, r.First, s.Changes}
			if got := w.At(step + 2).Batch; got != batch || s.Noise != noise {
				t.Fatalf("step %d has a batch of %d, want %d; changes %v", step+2, got, batch, s.Changes)
			}
			text, err := json.Marshal(s)
			var again State
			if err == nil {
				err = json.Unmarshal(text, &again)
			}
			if err == nil {
				err = r.Check(again, step)
			}
			if err != nil || again.Noise != s.Noise || !slices.Equal(again.Changes, s.Changes) {
				t.Fatalf("%+v becomes %+v: %v", s, again, err)
			}
		}
	})
}

// A newcomer refuses changes that no member can have decided.
func TestImpossibleGrowth(t *testing.T) {
	r := Rule{First: 10, Max: 35, Efficiency: 0.5, Every: 4}
	good := []Change{{5, 20, 100}, {9, 35, 100}}
	if err := r.Check(State{Changes: good}, 7); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(c []Change) []Change{
		"too early":           func(c []Change) []Change { c[1].Step = 8; return c },
		"in descending order": func(c []Change) []Change { c[1].Step = 1; return c },
		"of a negative step":  func(c []Change) []Change { c[0].Step = math.MinInt64; return c },
		"not decided yet":     func(c []Change) []Change { c[1].Step = 10; return c },
		"by another factor":   func(c []Change) []Change { c[0].Batch = 30; return c },
		"above the largest":   func(c []Change) []Change { c[1].Batch = 40; return c },
		"one too many":        func(c []Change) []Change { return append(c, Change{13, 35, 100}) },
		"without noise":       func(c []Change) []Change { c[0].Noise = 0; return c },
		"by little noise":     func(c []Change) []Change { c[1].Noise = 14; return c },
		"by noise without a number": func(c []Change) []Change {
			c[0].Noise = math.NaN()
			return c
		},
	} {
		if err := r.Check(State{Changes: change(slices.Clone(good))}, 7); err == nil {
			t.Errorf("a change %s passes", name)
		}
	}
	for _, a := range []Averages{{math.NaN(), 0, 0}, {0, math.Inf(1), 0}, {0, 0, -1}, {0, 0, math.NaN()}, {0, 0, math.Inf(1)}} {
		if r.Check(State{Noise: a}, 7) == nil {
			t.Errorf("averages %+v pass", a)
		}
	}
}

func TestGain(t *testing.T) {
	for _, c := range []struct {
		rate  string
		noise float64
		want  float64
	}{{Linear, 7, 4}, {Root, 7, 2}, {AdaScale, 0, 1}, {AdaScale, 1e12, 4}, {AdaScale, 80, 3}} {
		if got := (Rule{First: 10, Rate: c.rate}).Gain(Change{1, 40, c.noise}); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s with a noise of %v: %v, want %v", c.rate, c.noise, got, c.want)
		}
	}
	if got := (Rule{First: 10, Rate: AdaScale}).Gain(Change{Step: 1, Batch: 10}); got != 1 {
		t.Errorf("the first batch has the gain %v", got)
	}
}
