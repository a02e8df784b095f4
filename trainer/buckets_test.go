package trainer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func paramsOf(sizes ...int) []Param {
	var params []Param
	for i, n := range sizes {
		params = append(params, Param{Name: string(rune('a' + i)), Shape: []int{n}, Data: make([]float32, n)})
	}
	return params
}

func TestLayoutTable(t *testing.T) {
	tests := []struct {
		sizes []int
		limit int
		want  []bucket
	}{
		{[]int{5}, 1, []bucket{{0, 1, 0, 5}}},
		{[]int{5, 3}, 8, []bucket{{0, 2, 0, 8}}},
		{[]int{5, 3}, 7, []bucket{{1, 2, 5, 8}, {0, 1, 0, 5}}},
		{[]int{1, 2, 3, 4, 5}, 9, []bucket{{3, 5, 6, 15}, {0, 3, 0, 6}}},
		{[]int{100, 1, 100}, 2, []bucket{{2, 3, 101, 201}, {1, 2, 100, 101}, {0, 1, 0, 100}}},
	}
	for _, tt := range tests {
		if got := newLayout(paramsOf(tt.sizes...), tt.limit).buckets; !slices.Equal(got, tt.want) {
			t.Errorf("sizes %v, limit %d: buckets %v, want %v", tt.sizes, tt.limit, got, tt.want)
		}
	}
}

func TestLayoutCoversTheVectorOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 12).Draw(t, "sizes")
		limit := rapid.IntRange(1, 60).Draw(t, "limit")
		l := newLayout(paramsOf(sizes...), limit)
		hi := l.size()
		for k, b := range l.buckets {
			if b.hi != hi || b.firstParam >= b.endParam {
				t.Fatalf("bucket %d is %+v, the one before begins at %d", k, b, hi)
			}
			if b.hi-b.lo > limit && b.endParam-b.firstParam > 1 {
				t.Fatalf("bucket %+v is over the limit of %d and could be cut", b, limit)
			}
			hi = b.lo
		}
		if hi != 0 {
			t.Fatalf("buckets begin at %d", hi)
		}
		for i, v := range l.vector().views {
			if len(v) != sizes[i] || cap(v) != sizes[i] {
				t.Fatalf("view %d has length %d, capacity %d, want %d", i, len(v), cap(v), sizes[i])
			}
		}
	})
}

type waiter func(context.Context) error

func (w waiter) Wait(ctx context.Context) error { return w(ctx) }

// Whatever the order in which parameters are done, buckets start in order, each as
// early as that allows.
func TestBucketsStartInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLayout(paramsOf(3, 1, 4, 1, 5, 9, 2, 6), 7)
		var started []bucket
		r := newReduction(l, func(b bucket) pending {
			started = append(started, b)
			return waiter(func(context.Context) error { return nil })
		})
		done := map[int]bool{}
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7}).Draw(t, "order") {
			r.done(i)
			done[i] = true
			if want := startable(l, done); !slices.Equal(started, l.buckets[:want]) {
				t.Fatalf("with %v done, started %v, want the first %d", done, started, want)
			}
		}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// startable is the twin: how many buckets from the first on have all their
// parameters.
func startable(l layout, done map[int]bool) int {
	for k, b := range l.buckets {
		for i := b.firstParam; i < b.endParam; i++ {
			if !done[i] {
				return k
			}
		}
	}
	return len(l.buckets)
}

func TestReductionNamesTheModelsMistakes(t *testing.T) {
	idle := func(bucket) pending { return waiter(func(context.Context) error { return nil }) }
	tests := map[string][]int{
		"done(1) for b":                  {0, 2},
		"done(2) out of range or twice":  {0, 2, 2, 1},
		"done(3) out of range or twice":  {0, 1, 2, 3},
		"done(-1) out of range or twice": {-1, 0, 1, 2},
	}
	for want, calls := range tests {
		r := newReduction(newLayout(paramsOf(1, 1, 1), 1), idle)
		for _, i := range calls {
			r.done(i)
		}
		if err := r.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("done called for %v: error %v, want %q", calls, err, want)
		}
	}
}

// After the first error the others are waited for, too: they use the buffers. An
// ended context is no reason to return earlier.
func TestWaitLeavesNothingBehind(t *testing.T) {
	boom, waited := errors.New("boom"), 0
	r := newReduction(newLayout(paramsOf(1, 1, 1), 1), func(b bucket) pending {
		return waiter(func(ctx context.Context) error {
			waited++
			if err := ctx.Err(); err != nil {
				return err
			}
			if b.lo == 1 {
				return boom
			}
			return nil
		})
	})
	r.startAll()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.wait(ctx); !errors.Is(err, boom) || !strings.Contains(err.Error(), "bucket 2 of 3") || waited != 3 {
		t.Errorf("error %v after waiting for %d, want boom of bucket 2 after 3", err, waited)
	}
}
