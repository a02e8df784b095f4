package shm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/internal/kernel"
)

// tenancy is a group of ranks, each with an arena. Every rank has its own mapping of the other arenas, as separate processes
// have.
type tenancy struct {
	lanes  []*Lane
	arenas []*Arena
	open   []interface{ Close() error }
}

func newTenancy(t rapid.TB, n, size int) *tenancy {
	t.Helper()
	g := new(tenancy)
	for range n {
		a, err := NewArena(size)
		if err != nil {
			t.Fatal(err)
		}
		g.arenas, g.open = append(g.arenas, a), append(g.open, a)
	}
	memory := Ordinary(Size(n))
	for r := range n {
		mapped := make([][]byte, n)
		for i, a := range g.arenas {
			if mapped[i] = a.Bytes(); i == r {
				continue
			}
			view, err := a.Again()
			if err != nil {
				t.Fatal(err)
			}
			mapped[i], g.open = view.Bytes(), append(g.open, view)
		}
		s, err := attach(memory, mapped, n, r)
		if err != nil {
			t.Fatal(err)
		}
		g.lanes = append(g.lanes, s.Lane(0, upTo(n)))
	}
	return g
}

// close unmaps all arenas.
func (g *tenancy) close(t rapid.TB) {
	t.Helper()
	for _, c := range g.open {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// reduce posts and carries out an AllReduce at one rank.
func (t *tenancy) reduce(rank int, call uint64, dst, src []int64, fold Reducer[int64]) error {
	l, a := t.lanes[rank], t.arenas[rank]
	l.PostVectors(&Header{call}, kernel.Bytes(src), Offsets{Dst: a.Ref(kernel.Bytes(dst)), Src: a.Ref(kernel.Bytes(src))})
	bounds := make([]int, l.size+1)
	for r := range bounds {
		bounds[r] = r * len(src) / l.size
	}
	return AllReduce(l, Vectors[int64]{Dst: dst, Src: src, Bounds: bounds, Reduce: fold}, Everyone)
}

// Vectors may lie anywhere in the arenas, at equal or different offsets. All ranks get the right result, and only the result is
// written.
func TestDirect(t *testing.T) {
	const room = 20 * pageSize / 8
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "ranks")
		g := newTenancy(t, n, 2*8*room)
		defer g.close(t)
		dst, src := make([][]int64, n), make([][]int64, n)
		for r, a := range g.arenas {
			dst[r], src[r] = allocOf(t, a, room), allocOf(t, a, room)
			defer a.Free(kernel.Bytes(dst[r]))
			defer a.Free(kernel.Bytes(src[r]))
		}
		if rapid.Bool().Draw(t, "measure") {
			for _, l := range g.lanes {
				l.policies.chooseFrom = 0
			}
		}
		if rapid.Bool().Draw(t, "crowded") {
			g.crowd(rapid.IntRange(1, 3).Draw(t, "cores"))
		}
		within := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 2*pageSize/8))
		for k := range rapid.IntRange(1, 4).Draw(t, "calls") {
			length := rapid.OneOf(rapid.IntRange(1, 1200), rapid.IntRange(1, 10*pageSize/8), rapid.Just(8*pageSize/8)).Draw(t, "length")
			alike, inPlace := rapid.Bool().Draw(t, "alike"), rapid.Bool().Draw(t, "in place")
			var at []int
			for range n {
				at = append(at, within.Draw(t, "dst at"))
				if alike {
					at[len(at)-1] = at[0]
				}
			}
			from := within.Draw(t, "src at")
			fold := Reducer[int64]{Pair: join}
			if rapid.Bool().Draw(t, "sum") {
				fold = Reducer[int64]{Pair: kernel.Add[int64], All: kernel.AddAll[int64]}
			}
			errs := each(n, func(rank int) error {
				into := dst[rank][at[rank]:][:length]
				in := src[rank][from:][:length]
				if inPlace {
					in = into
				}
				return g.check(rank, uint64(k), dst[rank], into, in, fold)
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%d ranks, %d elements, dst at %v, src at %d, in place %t: %v", n, length, at, from, inPlace, err)
			}
		}
	})
}

func allocOf(t rapid.TB, a *Arena, n int) []int64 {
	t.Helper()
	v, err := Alloc[int64](a, n)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// check performs a call at one rank. dst is a part of whole. check compares the result, and checks that the rest of whole has not
// changed.
func (t *tenancy) check(rank int, call uint64, whole, dst, src []int64, fold Reducer[int64]) error {
	for i := range whole {
		whole[i] = -1
	}
	for i := range src {
		src[i] = input(rank, i)
	}
	sum := fold.All != nil
	if err := t.reduce(rank, call, dst, src, fold); err != nil {
		return err
	}
	for i, got := range dst {
		w := want(len(t.lanes), i)
		if sum {
			w = 0
			for r := range t.lanes {
				w += input(r, i)
			}
		}
		if got != w {
			return fmt.Errorf("rank %d element %d: %x, want %x", rank, i, got, w)
		}
		dst[i] = -1
	}
	if i := slices.IndexFunc(whole, func(x int64) bool { return x != -1 }); i >= 0 {
		return fmt.Errorf("rank %d: element %d, which is not in dst, has become %x", rank, i, whole[i])
	}
	return nil
}

// A rank that is put out in the middle of a call may run on later. By then the other ranks have
// abandoned the vectors of the call. So the late rank writes to no memory that the other ranks use,
// wherever the vectors begin.
func TestLateRank(t *testing.T) {
	for _, begin := range []int{0, 100} {
		const length = 5 * pageSize
		g := newTenancy(t, 3, 1<<20)
		dst := make([][]int64, 3)
		for r, a := range g.arenas {
			dst[r] = allocOf(t, a, begin+length)
		}
		goOn := make(chan struct{})
		errs := g.late(dst, begin, goOn)
		for range 2 {
			if err := <-errs; !errors.Is(err, ErrRevoked) {
				t.Fatal(err)
			}
		}
		for r := range 2 {
			if err := g.arenas[r].Abandon(kernel.Bytes(dst[r][begin:])); err != nil {
				t.Fatal(err)
			}
			for i := range dst[r] {
				dst[r][i] = 7
			}
		}
		if err := g.arenas[1].Free(kernel.Bytes(dst[1])); err != nil {
			t.Fatal(err)
		}
		others := [][]int64{allocOf(t, g.arenas[0], length), allocOf(t, g.arenas[1], begin+length)}
		close(goOn)
		if err := g.lanes[2].await(&g.lanes[2].own().taken.counter, 1, 2); err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(dst[0], func(x int64) bool { return x != 7 }); i >= 0 {
			t.Errorf("from %d: element %d of the others' has become %x", begin, i, dst[0][i])
		}
		for r, v := range others {
			if slices.ContainsFunc(v, func(x int64) bool { return x != 0 }) {
				t.Errorf("from %d: memory that rank %d took later was written to", begin, r)
			}
		}
		g.lanes[2].segment.Revoke()
		<-errs
		g.close(t)
	}
}

// late lets three ranks reduce the elements [begin:] of their vectors in place. In the middle of the call the last rank waits
// for goOn. The others are revoked at that moment.
func (t *tenancy) late(vectors [][]int64, begin int, goOn chan struct{}) (errs chan error) {
	errs = make(chan error, 3)
	wait := sync.OnceFunc(func() {
		for r := range 2 {
			t.lanes[r].segment.Revoke()
		}
		<-goOn
	})
	for r, v := range vectors {
		fold := func(dst, a, b []int64) {
			if r == 2 && len(dst) > 1000 { // not one of the short pieces at the edges
				wait()
			}
			join(dst, a, b)
		}
		go func() { errs <- t.reduce(r, 1, v[begin:], v[begin:], Reducer[int64]{Pair: fold}) }()
	}
	return errs
}

// A rank that is still in a call after the others have left it may read data that they have written
// since. The late rank returns an error, not the wrong result. A rank that has not left the call
// yet also returns an error.
func TestLateResult(t *testing.T) {
	for _, left := range []int{1, 2} {
		const length = 5 * pageSize
		g := newTenancy(t, 3, 1<<21)
		started, goOn, errs := make(chan struct{}), make(chan struct{}), make(chan error, 3)
		var src [3][]int64
		for r, a := range g.arenas {
			dst := allocOf(t, a, length)
			src[r] = allocOf(t, a, length)
			wait := sync.OnceFunc(func() {
				if r == 2 {
					close(started)
					<-goOn
				}
			})
			fold := func(dst, a, b []int64) {
				wait()
				join(dst, a, b)
			}
			go func() { errs <- g.reduce(r, 1, dst, src[r], Reducer[int64]{Pair: fold}) }()
		}
		<-started
		for r := range 2 {
			if err := g.lanes[2].await(&g.lanes[r].own().chunk.folded, 1, r); err != nil {
				t.Fatal(err)
			}
		}
		for r := range left {
			g.lanes[r].segment.Revoke()
			if err := <-errs; !errors.Is(err, ErrRevoked) {
				t.Fatal(err)
			}
		}
		for r := range left {
			for i := range src[r] {
				src[r][i] = 7
			}
		}
		close(goOn)
		if err := g.lanes[2].await(&g.lanes[2].own().taken.counter, 1, 2); err != nil {
			t.Fatal(err)
		}
		for r := range 3 {
			g.lanes[r].segment.Revoke()
		}
		for range 3 - left {
			if err := <-errs; !errors.Is(err, ErrRevoked) {
				t.Errorf("%d ranks have left: another returns %v, want that the segment is revoked", left, err)
			}
		}
		g.close(t)
	}
}

// Abandoned memory becomes private memory, in whole pages.
func TestAbandon(t *testing.T) {
	a, err := NewArena(16 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	other, err := a.Again()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	v, err := a.Alloc(8 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	heap := make([]byte, 2*pageSize)
	for i := range v {
		v[i], heap[i%len(heap)] = 1, 1
	}
	part := v[pageSize-1 : 4*pageSize+1] // three pages
	if err := errors.Join(a.Abandon(part), a.Abandon(heap), a.Abandon(v[1:pageSize])); err != nil {
		t.Fatal(err)
	}
	for i := range other.Bytes() {
		other.Bytes()[i] = 2
	}
	for i, c := range v {
		if inside := i >= pageSize && i < 4*pageSize; inside && c != 0 || !inside && c != 2 {
			t.Fatalf("byte %d is %d", i, c)
		}
	}
	if bytes.ContainsRune(heap, 0) {
		t.Error("ordinary memory was given up")
	}
	for _, c := range []struct {
		name string
		v    []byte
		in   bool
	}{
		{"before", v[:pageSize], true},
		{"behind", v[4*pageSize:], true},
		{"all", v, false},
		{"its end", v[4*pageSize-1:], false},
		{"within", v[2*pageSize : 2*pageSize+8], false},
	} {
		if got := a.Ref(c.v) != 0; got != c.in {
			t.Errorf("%s: in the arena %t, want %t", c.name, got, c.in)
		}
	}
	if err := a.Free(v); err != nil {
		t.Error(err)
	}
}

// The arena does not allocate abandoned memory again.
func TestFreeAbandoned(t *testing.T) {
	a, err := NewArena(16 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	v, err := a.Alloc(8 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Abandon(v[:pageSize]); err != nil {
		t.Fatal(err)
	}
	if err := a.Free(v); err != nil {
		t.Fatal(err)
	}
	if err := a.Free(v); err == nil {
		t.Error("freed twice")
	}
	w, err := a.Alloc(8 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	if first, _ := a.offset(w); first < 8*pageSize {
		t.Errorf("taken again, at %d", first)
	}
	if _, err := a.Alloc(1); err == nil {
		t.Error("memory to which others may write was allocated")
	}
	if err := errors.Join(a.Close(), a.Free(w)); err != nil {
		t.Fatal(err)
	}
}
