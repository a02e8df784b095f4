package trainer

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/growth"
	"github.com/elrun/elrun/trainer/optim"
)

func TestGrowthDefaults(t *testing.T) {
	if got, err := (Growth{}).withDefaults(8); err != nil || got != (Growth{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := (Growth{Max: 9}).withDefaults(8); err != nil || got != (Growth{9, GrowLinear, DefaultEfficiency, DefaultGrowthEvery}) {
		t.Errorf("%+v, %v", got, err)
	}
	for want, g := range map[string]Growth{
		"Growth.Max is 8, want more than GlobalBatch, which is 8": {Max: 8},
		"Growth.Max is 0":              {Rate: GrowRoot},
		`Growth.Rate is "cubic"`:       {Max: 9, Rate: "cubic"},
		"Growth.Efficiency is 1, want": {Max: 9, Efficiency: 1},
		"Growth.Efficiency is NaN":     {Max: 9, Efficiency: math.NaN()},
		"Growth.Every is -1":           {Max: 9, Every: -1},
	} {
		if _, err := g.withDefaults(8); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q in it", g, err, want)
		}
	}
	cfg := Config{Samples: 40, GlobalBatch: 20, Passes: 1, Optimizer: optim.SGD{}, Schedule: optim.Constant(1), Growth: Growth{Max: 40}}
	cfg.Gradients.Compression = "topk"
	if _, err := newJob(nil, ModelOf(ramp{paramsOf(2)}), cfg); err == nil || !strings.Contains(err.Error(), `Growth and Compression "topk`) {
		t.Errorf("with a sparse coding: error %v", err)
	}
}

// Wherever the batch grows, each pass has every sample once. The schedule is asked for each step by the samples before it, and the
// job ends when it has taken those of the job without growth.
func TestGrowingPlanCoversEachPassOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Samples: rapid.IntRange(1, 200).Draw(t, "samples"), GlobalBatch: rapid.IntRange(1, 60).Draw(t, "global"),
			Microbatch: rapid.IntRange(1, 40).Draw(t, "micro"), Passes: rapid.IntRange(1, 4).Draw(t, "passes"), Seed: 5}
		c.Growth = Growth{c.GlobalBatch + rapid.IntRange(1, 200).Draw(t, "more"), GrowLinear, 0.5, rapid.Int64Range(1, 5).Draw(t, "every")}
		p := newPlan(c)
		var seen []int
		taken := 0
		var s int64
		for s = 1; s <= p.last(); s++ {
			now := p.step(s)
			if asked, gain := p.scheduled(s); asked != int64(taken/c.Samples)*p.perPass+int64(taken%c.Samples/c.GlobalBatch)+1 || asked > p.steps ||
				gain != float64(p.walk().At(s).Batch)/float64(c.GlobalBatch) {
				t.Fatalf("step %d after %d samples: the schedule is asked for step %d, with the gain %v", s, taken, asked, gain)
			}
			for k := range now.microbatches {
				part := now.appendSamples(nil, k)
				if len(part) != c.Microbatch && k != now.microbatches-1 || len(part) == 0 {
					t.Fatalf("step %d: microbatch %d of %d has %d samples", s, k, now.microbatches, len(part))
				}
				seen = append(seen, part...)
			}
			taken += now.end - now.first
			if now.microbatches > p.fullMicrobatches(s) || p.fullMicrobatches(s) > p.mostMicrobatches() {
				t.Fatalf("step %d has %d microbatches, a full one %d, the largest %d", s, now.microbatches, p.fullMicrobatches(s), p.mostMicrobatches())
			}
			if p.endsPass(s) {
				if slices.Sort(seen); len(seen) != c.Samples || len(slices.Compact(seen)) != c.Samples {
					t.Fatalf("pass ending at step %d has %d samples of %d", s, len(seen), c.Samples)
				}
				seen = nil
			}
			next, after := p.step(s+1), p.step(s+2)
			if rapid.Bool().Draw(t, "noisy") {
				*p.grown = p.rule.After(*p.grown, s, growth.Averages{Trace: 1e6, Signal: 1, Batch: 1e6})
			}
			if p.step(s+1) != next || p.step(s+2).first != after.first {
				t.Fatalf("the commit of step %d has changed the next step", s)
			}
		}
		if taken != c.Samples*c.Passes || p.after(s-1) != 0 {
			t.Fatalf("the job ends after step %d with %d samples, want %d", s-1, taken, c.Samples*c.Passes)
		}
	})
}

// grows makes the batch of a test state grow, from 20 to 37 of 40 samples.
func grows(c *Config) { c.Growth = Growth{37, GrowAdaScale, 0.5, 2} }

// Three ways lead to the same state of a job whose batch grows: to commit a step, to apply another peer's update, and to load the
// whole state.
func TestEveryWayLeadsToTheSameGrowth(t *testing.T) {
	leader, follower := newTestState(t, true, grows), newTestState(t, true, grows)
	for range 8 {
		train(t, leader)
		if err := follower.Apply(bytes.NewReader(updated(t, leader))); err != nil {
			t.Fatal(err)
		}
		late := newTestState(t, true, grows)
		if err := late.Load(bytes.NewReader(saved(t, leader))); err != nil {
			t.Fatal(err)
		}
		for name, other := range map[string]*state{"applied": follower, "loaded": late} {
			if !bytes.Equal(saved(t, other), saved(t, leader)) || other.rules.plan.last() != leader.plan.last() {
				t.Fatalf("step %d: the state that was %s differs", leader.committed(), name)
			}
		}
	}
	if got := leader.plan.walk().At(8); got.Batch != 37 {
		t.Errorf("the batch has not grown: %+v", leader.plan.grown)
	}
	// A state of the other kind is refused, and changes nothing.
	other := newTestState(t, true, func(c *Config) { c.Growth = Growth{} })
	for _, c := range []struct{ from, to *state }{{leader, other}, {newTestState(t, true, nil), newTestState(t, true, grows)}} {
		if err := c.to.Load(bytes.NewReader(saved(t, c.from))); err == nil || !strings.Contains(err.Error(), "equal Config.Growth") || c.to.void {
			t.Errorf("error %v", err)
		}
	}
}

// The states of a job without growth have no trace of it.
func TestStatesWithoutGrowth(t *testing.T) {
	s := newTestState(t, false, nil)
	train(t, s)
	if b := append(saved(t, s), updated(t, s)...); bytes.Contains(b, []byte("Growth")) || bytes.Contains(b, []byte("Changes")) {
		t.Error("a state without growth has a field for it")
	}
}

// In exact mode the gradient of the first microbatch is kept, whatever the order in which the groups of a call become complete.
func TestFirstMicrobatch(t *testing.T) {
	l := newLayout(paramsOf(2, 3), 1)
	scale, err := exact.New(2, 8)
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}} {
		own, _ := newExactAccumulator(l)
		own.first = l.vector().views
		own.clear(scale)
		s := own.collect([]int{3, 0, 5}, ignore)
		for i := range s.grad {
			for _, k := range order {
				for at := len(s.grad[i]) - 1; at >= 0; at-- {
					s.grad[i][at] += float32(10*k + at)
					if k < 2 { // the last group is complete at the end of the call
						s.done(k, i, at)
					}
				}
			}
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		own.collect([]int{1, 2}, ignore) // without the first microbatch
		if got := fmt.Sprint(own.first); got != "[[10 11] [10 11 12]]" {
			t.Errorf("groups in the order %d: the first microbatch has the gradient %v", order, got)
		}
	}
}

// FuzzLoadGrown checks that a state with growth, once accepted, has a plan for all its steps, and becomes the same state again.
func FuzzLoadGrown(f *testing.F) {
	leader := newTestState(f, false, grows)
	for range 5 {
		train(f, leader)
		good := saved(f, leader)
		f.Add(good)
		for _, bad := range damaged(good) {
			f.Add(bad)
		}
		f.Add(bytes.Replace(good, []byte(`"Step":3`), []byte(`"Step":4`), 1))
		f.Add(bytes.Replace(good, []byte(`"Batch":37`), []byte(`"Batch":99`), 1))
		f.Add(bytes.Replace(good, []byte(`"Trace":`), []byte(`"Trace":-`), 1))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newTestState(t, false, grows)
		if r.Load(bytes.NewReader(b)) != nil {
			return
		}
		for _, s := range []int64{r.committed() + 1, r.committed() + 2, r.plan.last() + 1} {
			if p := r.plan.step(s); p.first < 0 || p.end <= p.first || p.end > r.plan.samples || p.microbatches > r.plan.mostMicrobatches() {
				t.Fatalf("step %d has the samples %d to %d", s, p.first, p.end)
			}
		}
		again := newTestState(t, false, grows)
		if err := again.Load(bytes.NewReader(saved(t, r))); err != nil || !bytes.Equal(saved(t, again), saved(t, r)) {
			t.Fatalf("the loaded state differs from the saved one: %v", err)
		}
	})
}
