package shm

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elrun/elrun/internal/kernel"
)

// crowd makes the ranks act as if they shared the given number of cores.
func (t *tenancy) crowd(cores int) {
	for r, l := range t.lanes {
		l.policies.stealing = true
		l.own().cpu.Store(uint32(r%cores) + 1)
	}
}

// A rank that gets no processor time does not delay the others. Another rank on its core reduces its chunk, once. When the rank
// runs again, it finds the result.
func TestSteal(t *testing.T) {
	const n, length = 3, 9 * pageSize / 8
	g := newTenancy(t, n, 2*8*length)
	defer g.close(t)
	g.crowd(1)
	stuck := time.AfterFunc(hang, func() { // revokes after a hang; normally no rank waits
		for _, l := range g.lanes {
			l.segment.Revoke()
		}
	})
	defer stuck.Stop()
	dst, src := make([][]int64, n), make([][]int64, n)
	for r, a := range g.arenas {
		dst[r], src[r] = allocOf(t, a, length), allocOf(t, a, length)
		for i := range src[r] {
			src[r][i] = input(r, i)
		}
	}
	for call := range n { // one rank after the other makes its call, before the others run
		for r, l := range g.lanes {
			a := g.arenas[r]
			l.PostVectors(&Header{uint64(call)}, kernel.Bytes(src[r]), Offsets{Dst: a.Ref(kernel.Bytes(dst[r])), Src: a.Ref(kernel.Bytes(src[r]))})
		}
		for i := range n {
			r, folded := (call+i)%n, 0
			fold := Reducer[int64]{Pair: join, All: func(dst, from [][]int64, past int) {
				folded += len(dst[0])
				joinAll(dst, from, past)
			}}
			if err := AllReduce(g.lanes[r], Vectors[int64]{Dst: dst[r], Src: src[r], Reduce: fold}, Everyone); err != nil {
				t.Fatal(err)
			}
			if all := folded == length; all != (i == 0) || !all && folded != 0 {
				t.Errorf("call %d: rank %d, the %d. one there, has folded %d elements of %d", call, r, i+1, folded, length)
			}
		}
		for r := range n {
			for i, got := range dst[r] {
				if got != want(n, i) {
					t.Fatalf("call %d, rank %d, element %d: %x, want %x", call, r, i, got, want(n, i))
				}
			}
			clear(dst[r])
		}
	}
}

// A rank may steal the chunk of another rank only if both run on one core and the chunk is short.
func TestCanSteal(t *testing.T) {
	g := newTenancy(t, 4, pageSize)
	defer g.close(t)
	for _, c := range []struct {
		name       string
		crowded    bool
		mine, that uint32
		bytes      int
		want       bool
	}{
		{"same core", true, 2, 2, 64 << 10, true},
		{"another core", true, 1, 2, 64 << 10, false},
		{"core not known", true, 0, 0, 64 << 10, false},
		{"a core for each", false, 2, 2, 64 << 10, false},
		{"long", true, 2, 2, stealBelow, false},
	} {
		l := g.lanes[1]
		l.policies.stealing = c.crowded
		l.own().cpu.Store(c.mine)
		l.areas[3].cpu.Store(c.that)
		if got := l.canSteal(3, c.bytes); got != c.want {
			t.Errorf("%s: helps %t, want %t", c.name, got, c.want)
		}
	}
}

// A rank that waits for a chunk waits for the rank that has claimed it, whatever other processes have written.
func TestClaimedBy(t *testing.T) {
	g := newTenancy(t, 3, pageSize)
	defer g.close(t)
	g.crowd(1)
	l := g.lanes[0]
	l.directCalls = 1<<32 - 1
	for _, c := range []struct {
		taken uint64
		want  int
	}{
		{0, 1},
		{uint64(l.directCalls)<<32 | 2, 2},
		{uint64(l.directCalls-1)<<32 | 2, 1},
		{uint64(l.directCalls)<<32 | 3, 1},
		{uint64(l.directCalls)<<32 | 1<<31, 1},
	} {
		l.areas[1].chunk.claimed.Store(c.taken)
		if got := l.claimedBy(1); got != c.want {
			t.Errorf("taken %#x: rank %d, want %d", c.taken, got, c.want)
		}
	}
}

// A chunk is claimed once in each call, also where the call number wraps around.
func TestClaim(t *testing.T) {
	g := newTenancy(t, 3, pageSize)
	defer g.close(t)
	for call := uint32(1<<32 - 3); call != 3; call++ {
		for r, l := range g.lanes {
			l.directCalls = call
			if got := l.claim(1); got != (r == 0) {
				t.Errorf("call %d: rank %d takes it: %t", call, r, got)
			}
		}
	}
}

// If several ranks claim a chunk at the same time, one of them gets it.
func TestClaimTogether(t *testing.T) {
	const n, calls = 3, 20_000
	g := newTenancy(t, n, pageSize)
	defer g.close(t)
	var here atomic.Int64
	got := make([]atomic.Int64, calls+1)
	err := errors.Join(each(n, func(rank int) error {
		l := g.lanes[rank]
		meet := func(times int) {
			here.Add(1)
			for here.Load() < int64(n*times) {
				runtime.Gosched()
			}
		}
		for call := 1; call <= calls; call++ {
			meet(2*call - 1)
			l.directCalls = uint32(call)
			if l.claim(1) {
				got[call].Add(1)
			}
			meet(2 * call)
		}
		return nil
	})...)
	if err != nil {
		t.Fatal(err)
	}
	for call := 1; call <= calls; call++ {
		if n := got[call].Load(); n != 1 {
			t.Fatalf("call %d: taken by %d ranks", call, n)
		}
	}
}
