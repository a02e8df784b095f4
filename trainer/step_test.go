package trainer

import (
	"context"
	"slices"
	"testing"
)

// What a peer holds of the open step survives a change of the group if it is still
// its own; else it is computed again and counted as such.
func TestContributionAfterAChange(t *testing.T) {
	held := func() contribution {
		return contribution{step: 7, grad: []float32{1, 2}, first: 4, end: 6, samples: 32, loss: 3}
	}
	tests := []struct {
		name       string
		step       int64
		first, end int
		kept       bool
		recomputed int
	}{
		{"same share", 7, 4, 8, true, 0},
		{"share is done", 7, 4, 6, true, 0},
		{"smaller share", 7, 4, 5, false, 2},
		{"moved share", 7, 3, 8, false, 2},
		{"next step", 8, 4, 8, false, 0},
	}
	for _, tt := range tests {
		c := held()
		c.begin(tt.step, tt.first, tt.end)
		kept := c.samples == 32 && c.grad[1] == 2 && c.end == 6
		empty := c.samples == 0 && c.loss == 0 && c.grad[0] == 0 && c.grad[1] == 0 && c.first == tt.first && c.end == tt.first
		if kept != tt.kept || empty == tt.kept || c.recomputed != tt.recomputed || c.step != tt.step {
			t.Errorf("%s: contribution is %+v", tt.name, c)
		}
	}
}

func TestSpeedIsWholeSamplesASecond(t *testing.T) {
	c := contribution{samples: 32, compute: 1_500_000_000}
	if c.speed() != 21 || (&contribution{samples: 3}).speed() != 0 {
		t.Errorf("32 samples in 1.5 s: %d a second; without a time: %d", c.speed(), (&contribution{samples: 3}).speed())
	}
}

// traced is a model that notes what it does.
type traced struct {
	params []Param
	trace  *[]string
}

func (m traced) Params() []Param { return m.params }

func (m traced) Accumulate(grad [][]float32, _ []int, done func(int)) (float64, error) {
	for i := len(grad) - 1; i >= 0; i-- {
		*m.trace = append(*m.trace, "backward "+m.params[i].Name)
		done(i)
	}
	return 0, nil
}

// Buckets start within the last backward pass, not in those before and not after.
func TestReductionOverlapsTheLastBackwardPass(t *testing.T) {
	var trace []string
	params := paramsOf(2, 2, 2)
	r := runner{model: traced{params, &trace}, layout: newLayout(params, 2)}
	r.open = contribution{step: 1, views: r.layout.views(make([]float32, 6))}
	reduction := newReduction(r.layout, func(b bucket) pending {
		trace = append(trace, "reduce "+params[b.firstParam].Name)
		return waiter(func(context.Context) error { return nil })
	})
	p := newPlan(Config{Samples: 10, GlobalBatch: 10, Microbatch: 5, Steps: 1}).step(1)
	if err := r.compute(t.Context(), p, 2, reduction); err != nil {
		t.Fatal(err)
	}
	want := []string{"backward c", "backward b", "backward a",
		"backward c", "reduce c", "backward b", "reduce b", "backward a", "reduce a"}
	if !slices.Equal(trace, want) || r.open.samples != 10 || r.open.end != 2 {
		t.Errorf("trace %v, want %v; contribution %+v", trace, want, r.open)
	}
	// What is held already is reduced without the model.
	trace = nil
	if err := r.compute(t.Context(), p, 2, newReduction(r.layout, reduction.start)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"reduce c", "reduce b", "reduce a"}; !slices.Equal(trace, want) {
		t.Errorf("trace with all microbatches held %v, want %v", trace, want)
	}
}
