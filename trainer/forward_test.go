package trainer

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/trainer/internal/laps"
)

// forwardOf returns a forward pass over parameters of the given sizes, with one bucket per parameter. Each element of the sum of
// parameter i is i+1, over two samples, and an update subtracts the mean. A value in gates[i] completes the sum of parameter i.
func forwardOf(t *testing.T, gates []chan error, sizes ...int) *forward {
	t.Helper()
	l := newLayout(paramsOf(sizes...), 1)
	l.buckets = nil
	for i := range slices.Backward(sizes) {
		l.buckets = append(l.buckets, bucket{lo: l.offsets[i], hi: l.offsets[i+1], firstParam: i, endParam: i + 1})
	}
	sums := newReduction(l, func(b bucket) pending {
		return waiter(func(ctx context.Context) error {
			select {
			case err := <-gates[b.firstParam]:
				return err
			default:
			}
			select {
			case err := <-gates[b.firstParam]:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	sums.yield = func() {}
	sums.startAll()
	e, v := &undoLog{slots: make([][][]float32, len(sizes))}, l.vector()
	for i, p := range l.params {
		e.params = append(e.params, p.Data)
		for k := range v.views[i] {
			v.views[i][k] = float32(i + 1)
		}
	}
	e.reserve()
	return &forward{undo: e, sums: sums, values: v.views, divisor: 2, broken: always(nil), clock: new(laps.Clock),
		apply: func(param, mean []float32, _ [][]float32) {
			for k, m := range mean {
				param[k] -= m
			}
		}}
}

// gatesFor returns a gate for each parameter. The gates of the parameters in open let every wait pass: the channel is closed.
func gatesFor(params int, open ...int) (gates []chan error) {
	for i := range params {
		gates = append(gates, make(chan error))
		if slices.Contains(open, i) {
			close(gates[i])
		}
	}
	return gates
}

// While a sum is on its way, the parameters whose sums have arrived are updated, each once.
func TestParametersAreUpdatedMeanwhile(t *testing.T) {
	const n = 2*updateBlock + 5
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		gates := gatesFor(3, 1, 2)
		f := forwardOf(t, gates, n, 7, n)
		turns := 0
		f.sums.yield = func() {
			if turns++; f.undo.left(1)+f.undo.left(2) == 0 {
				close(gates[0])
				f.sums.yield = func() { t.Error("there is a turn more than there are blocks") }
			}
		}
		if err := f.need(ctx, 0, 3); err != nil {
			t.Fatalf("%v; of the others %d and %d elements are left", err, f.undo.left(1), f.undo.left(2))
		}
		if turns != 4 {
			t.Errorf("others had %d turns meanwhile, want one for each of 4 blocks", turns)
		}
		if f.undo.left(0) != 3 {
			t.Errorf("%d elements are left, although element 3 and later ones were needed", f.undo.left(0))
		}
		for i := range f.undo.params {
			if err := f.need(ctx, i, 0); err != nil {
				t.Fatal(err)
			}
			for k, x := range f.undo.params[i] {
				if want := -float32(i+1) / 2; x != want {
					t.Fatalf("element %d of parameter %d is %v, want %v", k, i, x, want)
				}
			}
		}
	})
}

// If a sum is not finite, or does not arrive, other parameters are still updated.
func TestNothingToDoMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		open []int
		bad  bool
	}{
		"not there":  {[]int{1}, false},
		"not finite": {[]int{1, 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gates := gatesFor(3, c.open...)
				f := forwardOf(t, gates, 4, 4, 4)
				if c.bad {
					f.values[2][1] = float32(math.Inf(1))
				}
				time.AfterFunc(time.Second, func() { close(gates[0]) })
				if err := f.need(t.Context(), 0, 0); err != nil || f.undo.left(0) != 0 {
					t.Errorf("error %v, %d elements are left", err, f.undo.left(0))
				}
				if f.undo.left(2) != 4 {
					t.Errorf("parameter 2 is updated from element %d on", f.undo.left(2))
				}
				if err := f.need(t.Context(), 1, 0); err != nil {
					t.Error(err)
				}
				gates[2] = gatesFor(1, 0)[0]
				if err := f.need(t.Context(), 2, 0); c.bad != errors.Is(err, ErrNotFinite) {
					t.Errorf("parameter 2: error %v", err)
				}
			})
		})
	}
}

// If steps do not begin early, gradients may become complete in any order.
func TestOrderIsForStepsThatOverlap(t *testing.T) {
	var overlapped bool
	waits := ModelOf(traced{params: paramsOf(3, 2)})
	waits.Waits = true
	waits.Order = func(o bool) []Piece {
		overlapped = o
		return []Piece{{Param: 1}, {Param: 0}}
	}
	straight := waits
	straight.Waits = false
	for name, c := range map[string]struct {
		model  Model
		change func(c *Config)
		want   bool
	}{
		"waits":    {waits, nil, true},
		"straight": {straight, nil, false},
		"exact":    {waits, func(c *Config) { c.Gradients.Exact = true }, false},
		"clip":     {waits, func(c *Config) { c.Gradients.Clip = 1 }, false},
	} {
		if aloneWith(t, c.model, c.change); overlapped != c.want {
			t.Errorf("%s: overlapped is %t", name, overlapped)
		}
	}
}
