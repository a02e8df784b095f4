package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
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
		{[]int{5}, 5, []bucket{{0, 0, 5, 0, 1, true}}},
		{[]int{5}, 2, []bucket{{0, 3, 5, 0, 1, false}, {1, 1, 3, 0, 1, false}, {2, 0, 1, 0, 1, true}}},
		{[]int{5, 3}, 8, []bucket{{0, 0, 8, 0, 2, true}}},
		{[]int{5, 3}, 7, []bucket{{0, 5, 8, 1, 2, false}, {1, 0, 5, 0, 1, true}}},
		{[]int{1, 2, 3, 4, 5}, 9, []bucket{{0, 6, 15, 3, 5, false}, {1, 0, 6, 0, 3, true}}},
		{[]int{10, 1, 9}, 4, []bucket{{0, 16, 20, 2, 3, false}, {1, 12, 16, 2, 3, false}, {2, 10, 12, 1, 3, false}, {3, 6, 10, 0, 1, false}, {4, 2, 6, 0, 1, false}, {5, 0, 2, 0, 1, true}}},
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
		least := rapid.IntRange(1, 60).Draw(t, "least")
		l := newLayout(paramsOf(sizes...), limit)
		l.divide(limit, least)
		hi := l.size()
		for k, b := range l.buckets {
			if b.number != k || b.hi != hi || b.lo >= hi {
				t.Fatalf("bucket %d is %+v, the one before begins at %d", k, b, hi)
			}
			checkBucket(t, l, b, min(max(limit, hi/leastPart), max(least, hi/2)))
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

// checkBucket checks the size of a bucket and its range of parameters. A bucket has limit elements, or at least a quarter of limit
// if the bucket begins at the beginning of a parameter; only the bucket at offset 0 may be smaller. The range has exactly the
// parameters that have elements in the bucket.
func checkBucket(t *rapid.T, l layout, b bucket, limit int) {
	if n := b.hi - b.lo; n > limit || n < limit && b.lo > 0 && (n < limit/4 || !slices.Contains(l.offsets, b.lo)) {
		t.Fatalf("bucket %+v with a limit of %d, parameters begin at %v", b, limit, l.offsets)
	}
	for i := range l.params {
		lo, hi := l.part(b, i)
		if inside := i >= b.firstParam && i < b.endParam; inside != (lo < hi) && l.offsets[i] < l.offsets[i+1] {
			t.Fatalf("bucket %+v has the elements %d to %d of parameter %d, which is at %d", b, lo, hi, i, l.offsets[i])
		}
	}
}

// Buckets shrink towards the end, because no computation is left to hide the reduction of the last bucket. The number of buckets is
// bounded, even for a large model.
func TestSizesOfBuckets(t *testing.T) {
	tests := []struct {
		size, limit int
		want        []int
	}{
		{4 << 16, 1 << 16, []int{1 << 16, 1 << 16, 1 << 16, 1 << 15, 1 << 14, 1 << 13, 1 << 13}},
		{10 << 10, 1 << 16, []int{8 << 10, 2 << 10}},
		{3 << 10, 1 << 16, []int{3 << 10}},
		{3 << 10, 1 << 10, []int{1 << 10, 1 << 10, 1 << 10}},
	}
	sizes := func(size, limit int) (got []int) {
		l := newLayout(paramsOf(size), limit)
		l.divide(limit, leastBucket)
		for _, b := range l.buckets {
			got = append(got, b.hi-b.lo)
		}
		return got
	}
	for _, tt := range tests {
		if got := sizes(tt.size, tt.limit); !slices.Equal(got, tt.want) {
			t.Errorf("%d elements, limit %d: %v, want %v", tt.size, tt.limit, got, tt.want)
		}
	}
	if got := sizes(1<<24, 1<<16); got[0] != 1<<20 || len(got) > 75 {
		t.Errorf("%d buckets of 64 MiB, the first of %d elements: %v", len(got), got[0], got)
	}
}

// ordered draws an order in which pieces of the parameters' gradients become complete.
func ordered(t *rapid.T, params []Param) (order []Piece) {
	for i, p := range params {
		for from := len(p.Data); from > 0; {
			from = rapid.IntRange(0, from-1).Draw(t, "from")
			order = append(order, Piece{i, from})
		}
	}
	order = rapid.Permutation(order).Draw(t, "order")
	// Within a parameter, pieces complete from the end to the beginning.
	next := map[int][]int{}
	for _, p := range order {
		next[p.Param] = append(next[p.Param], p.From)
	}
	for k, p := range order {
		slices.SortFunc(next[p.Param], func(a, b int) int { return b - a })
		order[k].From, next[p.Param] = next[p.Param][0], next[p.Param][1:]
	}
	return order
}

// For any order of completion, a bucket starts when its last piece is complete, and all earlier buckets are complete by then. So
// no call waits for a piece that completes later than its own pieces.
func TestBucketsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := paramsOf(rapid.SliceOfN(rapid.IntRange(1, 20), 1, 8).Draw(t, "sizes")...)
		l, order := newLayout(params, 1), ordered(t, params)
		if err := l.completeIn(order); err != nil {
			t.Fatal(err)
		}
		l.divide(rapid.IntRange(1, 60).Draw(t, "limit"), rapid.IntRange(1, 60).Draw(t, "least"))
		var started []bucket
		r := newReduction(l, func(b bucket) pending {
			started = append(started, b)
			return waiter(func(context.Context) error { return nil })
		})
		complete := make([]bool, l.size())
		for _, p := range order {
			r.ready(p.Param, p.From)
			for at := l.offsets[p.Param] + p.From; at < l.offsets[p.Param+1]; at++ {
				complete[at] = true
			}
			want := 0
			for want < len(l.buckets) && !slices.Contains(complete[l.buckets[want].lo:l.buckets[want].hi], false) {
				want++
			}
			if len(started) != want {
				t.Fatalf("after %v of %v %d buckets have started, want %d of %v", p, order, len(started), want, l.buckets)
			}
		}
		if err := r.err; err != nil || !slices.Equal(started, l.buckets) {
			t.Fatalf("%v, started %v of %v", err, started, l.buckets)
		}
		for k, b := range l.buckets[1:] {
			if l.completes(b) < l.completes(l.buckets[k]) {
				t.Fatalf("bucket %+v is complete before %+v", b, l.buckets[k])
			}
		}
	})
}

// A piece that completes early does not share a bucket with a piece that completes late.
func TestBucketsOutOfTurn(t *testing.T) {
	l := newLayout(paramsOf(4, 6, 10), 100)
	if err := l.completeIn([]Piece{{2, 0}, {1, 4}, {0, 0}, {1, 0}}); err != nil {
		t.Fatal(err)
	}
	l.divide(100, 100)
	want := []bucket{{0, 8, 20, 1, 3, false}, {1, 0, 4, 0, 1, false}, {2, 4, 8, 1, 2, true}}
	if !slices.Equal(l.buckets, want) {
		t.Errorf("buckets %+v, want %+v", l.buckets, want)
	}
}

// A bucket begins at the beginning of a piece where possible. Otherwise it would wait for the rest of that piece.
func TestBucketsOfPieces(t *testing.T) {
	l := newLayout(paramsOf(30, 1), 1)
	if err := l.completeIn([]Piece{{1, 0}, {0, 24}, {0, 18}, {0, 12}, {0, 0}}); err != nil {
		t.Fatal(err)
	}
	l.divide(8, 8)
	want := []bucket{{0, 24, 31, 0, 2, false}, {1, 18, 24, 0, 1, false}, {2, 12, 18, 0, 1, false}, {3, 4, 12, 0, 1, false}, {4, 0, 4, 0, 1, true}}
	if !slices.Equal(l.buckets, want) {
		t.Errorf("buckets %+v, want %+v", l.buckets, want)
	}
}

// With two or three hosts buckets are shorter, because each bucket is sent in as many parts as there are hosts. Within one host the
// last buckets are as long as the others.
func TestBucketsByHosts(t *testing.T) {
	for hosts, want := range map[int]int{1: 400, 2: 200, 3: 300, 4: 400, 7: 400} {
		v := elastic.View{}
		for h := range hosts {
			v.Members = append(v.Members, elastic.Member{Host: fmt.Sprint(h)}, elastic.Member{Host: fmt.Sprint(h)})
		}
		r := &reducer{bucketBytes: 4 * 400, layout: newLayout(paramsOf(4*400), 1)}
		r.divide(v)
		if first := r.layout.buckets[0]; first.hi-first.lo != want {
			t.Errorf("%d hosts: buckets of %d elements, want %d", hosts, first.hi-first.lo, want)
		}
		if last := r.layout.buckets[len(r.layout.buckets)-1]; hosts == 1 && last.hi != want {
			t.Errorf("the last bucket of a host has %d elements", last.hi)
		}
	}
}

func TestBadOrders(t *testing.T) {
	for what, order := range map[string][]Piece{
		"0 elements of b are missing":                      nil,
		"1 elements of a are missing":                      {{1, 0}},
		"2 elements of b are missing":                      {{0, 0}, {1, 2}},
		"{Param:2 From:0} at index 1: it is out of range":  {{0, 0}, {2, 0}},
		"{Param:-1 From:0} at index 0: it is out of range": {{-1, 0}},
		"{Param:1 From:3} at index 0: it is out of range":  {{1, 3}},
		"{Param:1 From:-1} at index 0: it is out of range": {{1, -1}},
		"{Param:1 From:1} at index 2: it is out of range":  {{0, 0}, {1, 1}, {1, 1}},
	} {
		l := newLayout(paramsOf(1, 3), 2)
		if err := l.completeIn(order); err == nil || what[0] != '0' && !strings.Contains(err.Error(), what) {
			t.Errorf("%v: error %v, want %q", order, err, what)
		}
	}
}

type waiter func(context.Context) error

func (w waiter) Wait(ctx context.Context) error { return w(ctx) }

// The first parameters have the highest priority. Within a parameter the end has priority over the beginning, because it is
// complete first.
func TestPriorities(t *testing.T) {
	l := newLayout(paramsOf(10, 1, 9), 4) // as in TestLayoutTable
	var got []int32
	for _, b := range l.buckets {
		got = append(got, l.priority(b))
	}
	if want := []int32{6, 5, 10, 15, 14, 13}; !slices.Equal(got, want) {
		t.Errorf("priorities %v, want %v", got, want)
	}
}

// Parts of parameters may complete in any order: buckets start in their own order, each as early as possible.
func TestBucketsStartInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLayout(paramsOf(3, 1, 4, 1, 5, 9, 2, 6), rapid.IntRange(1, 12).Draw(t, "limit"))
		var started []bucket
		r := newReduction(l, func(b bucket) pending {
			started = append(started, b)
			return waiter(func(context.Context) error { return nil })
		})
		complete := make([]bool, l.size())
		for slices.Contains(complete, false) {
			i := rapid.IntRange(0, len(l.params)-1).Draw(t, "parameter")
			if r.from[i] == 0 {
				continue
			}
			from := rapid.IntRange(0, r.from[i]-1).Draw(t, "from")
			r.ready(i, from)
			for at := l.offsets[i] + from; at < l.offsets[i+1]; at++ {
				complete[at] = true
			}
			if want := startable(l, complete); !slices.Equal(started, l.buckets[:want]) {
				t.Fatalf("with %v complete, started %v, want the first %d", complete, started, want)
			}
		}
		if r.err != nil {
			t.Fatal(r.err)
		}
	})
}

// startable is an independent implementation of the condition in reduction.ready: it returns the number of leading buckets whose
// elements are all complete.
func startable(l layout, complete []bool) int {
	for k, b := range l.buckets {
		if slices.Contains(complete[b.lo:b.hi], false) {
			return k
		}
	}
	return len(l.buckets)
}

func TestReductionNamesTheModelsMistakes(t *testing.T) {
	idle := func(bucket) pending { return waiter(func(context.Context) error { return nil }) }
	tests := map[string][][2]int{
		"Done(2, 0) out of range, twice or out of order":  {{0, 0}, {2, 0}, {2, 0}, {1, 0}},
		"Done(3, 0) out of range, twice or out of order":  {{0, 0}, {1, 0}, {2, 0}, {3, 0}},
		"Done(-1, 0) out of range, twice or out of order": {{-1, 0}, {0, 0}, {1, 0}, {2, 0}},
		"Done(2, 2) out of range, twice or out of order":  {{2, 1}, {2, 2}, {0, 0}, {1, 0}, {2, 0}},
		"Done(2, 3) out of range, twice or out of order":  {{2, 3}, {0, 0}, {1, 0}, {2, 0}},
		"Done(2, -1) out of range, twice or out of order": {{2, -1}, {0, 0}, {1, 0}, {2, 0}},
	}
	for want, calls := range tests {
		r := newReduction(newLayout(paramsOf(1, 1, 3), 1), idle)
		for _, c := range calls {
			r.ready(c[0], c[1])
		}
		if err := r.err; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Done called for %v: error %v, want %q", calls, err, want)
		}
	}
}

// If a call fails, wait still waits for the other calls, because they use the buffers. The end of the context does not shorten
// that wait.
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
