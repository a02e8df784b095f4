package shm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/internal/kernel"
)

// attach returns the segment of a rank on this machine.
func attach(memory []byte, arenas [][]byte, n, rank int) (*Segment, error) {
	return ReadMachine().Attach(memory, arenas, n, rank)
}

// group returns the lanes of n ranks in memory of this process.
func group(t rapid.TB, n int) []*Lane {
	t.Helper()
	memory := Ordinary(Size(n))
	lanes := make([]*Lane, n)
	for r := range n {
		s, err := attach(memory, nil, n, r)
		if err != nil {
			t.Fatal(err)
		}
		lanes[r] = s.Lane(0, upTo(n))
	}
	return lanes
}

// upTo lists the first n ranks.
func upTo(n int) (ranks []int) {
	for r := range n {
		ranks = append(ranks, r)
	}
	return ranks
}

// each runs f at all ranks and returns their errors.
func each(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() { errs[r] = f(r) })
	}
	all.Wait()
	return errs
}

// join is associative and does not commute. It composes functions of x, each of which is f*x + g with f in the upper half of an
// element and g in the lower half.
func join(dst, a, b []int64) {
	for i := range dst {
		f1, g1, f2, g2 := uint32(a[i]>>32), uint32(a[i]), uint32(b[i]>>32), uint32(b[i])
		dst[i] = int64(f1*f2)<<32 | int64(g1*f2+g2)
	}
}

// joinAll joins many vectors, and writes the result to several vectors.
func joinAll(dst, from [][]int64, _ int) {
	sum := slices.Clone(from[0])
	for _, v := range from[1:] {
		join(sum, sum, v)
	}
	for _, d := range dst {
		copy(d, sum)
	}
}

// input returns element i of the vector of a rank.
func input(rank, i int) int64 { return int64(rank+2)<<32 | int64(uint32(i*(rank+3))) }

// want joins the inputs of n ranks one by one.
func want(n, i int) int64 {
	v := []int64{input(0, i)}
	for r := 1; r < n; r++ {
		join(v, v, []int64{input(r, i)})
	}
	return v[0]
}

// Any sequence of calls of any kind and length has the specified results. The calls use the blocks and slots of a lane again and
// again. The results are written by ordinary or by non-temporal stores.
func TestCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "ranks")
		lanes := group(t, n)
		if rapid.Bool().Draw(t, "past the caches") {
			for _, l := range lanes {
				l.segment.cacheLimit = 0
			}
		}
		fold := Reducer[int64]{Pair: join}
		if rapid.Bool().Draw(t, "fold all at once") {
			fold.All = joinAll
		}
		for k := range rapid.IntRange(1, 6).Draw(t, "calls") {
			kind := rapid.SampledFrom([]string{"small", "allreduce", "reduce", "scatter", "gather", "gather to one", "meet"}).Draw(t, "kind")
			root := rapid.IntRange(0, n-1).Draw(t, "root")
			bounds := []int{0}
			for range n {
				bounds = append(bounds, bounds[len(bounds)-1]+rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 60_000)).Draw(t, "chunk"))
			}
			errs := each(n, func(rank int) error { return callOf(lanes[rank], uint64(k), kind, root, bounds, fold) })
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%s of %d ranks, bounds %v: %v", kind, n, bounds, err)
			}
		}
	})
}

// callOf performs a call at one rank and checks the result.
func callOf(l *Lane, k uint64, kind string, root int, bounds []int, fold Reducer[int64]) error {
	first, end := bounds[l.rank], bounds[l.rank+1]
	whole := make([]int64, bounds[l.size])
	for i := range whole {
		whole[i] = input(l.rank, i)
	}
	h := &Header{k}
	switch kind {
	case "small":
		v := whole[:min(len(whole), Inline/8)]
		l.Post(h, Offsets{}, kernel.Bytes(v))
		return errors.Join(Small(l, v, join), folded(v, l.size, 0))
	case "meet":
		l.Post(h, Offsets{})
		return l.AwaitAll()
	case "scatter":
		l.Post(h, Offsets{})
		dst := make([]int64, end-first)
		return errors.Join(ReduceScatter(l, Vectors[int64]{Dst: dst, Src: whole, Bounds: bounds, Reduce: fold}), folded(dst, l.size, first))
	case "allreduce", "reduce":
		l.Post(h, Offsets{})
		if kind == "allreduce" {
			root = Everyone
		}
		err := AllReduce(l, Vectors[int64]{Dst: whole, Src: whole, Bounds: bounds, Reduce: fold}, root)
		if root == Everyone || root == l.rank {
			return errors.Join(err, folded(whole, l.size, 0))
		}
		return errors.Join(err, unchanged(whole, l.rank))
	}
	l.Post(h, Offsets{})
	if kind == "gather" {
		root = Everyone
	}
	dst := make([]int64, len(whole))
	err := AllGather(l, Vectors[int64]{Dst: dst, Src: whole[first:end], Bounds: bounds}, root)
	for r := 0; err == nil && r < l.size && (root == Everyone || root == l.rank); r++ {
		for i := bounds[r]; i < bounds[r+1]; i++ {
			if dst[i] != input(r, i) {
				return fmt.Errorf("rank %d element %d: %x, want %x", l.rank, i, dst[i], input(r, i))
			}
		}
	}
	return err
}

// unchanged checks that v still equals the input of a rank.
func unchanged(v []int64, rank int) error {
	for i, got := range v {
		if got != input(rank, i) {
			return fmt.Errorf("element %d of rank %d, which is not to have the result: %x, want %x", i, rank, got, input(rank, i))
		}
	}
	return nil
}

// folded checks that v has the elements from first on of the result of n ranks.
func folded(v []int64, n, first int) error {
	for i, got := range v {
		if w := want(n, first+i); got != w {
			return fmt.Errorf("element %d: %x, want %x", first+i, got, w)
		}
	}
	return nil
}

// A segment has the same alignment in the block and in the vector, wherever its chunk begins. Only then can one reduction write
// to the block and, by non-temporal stores, to the vector.
func TestSlotsAlike(t *testing.T) {
	const n = 3
	for _, l := range group(t, n) {
		s := staged[int64]{Lane: l, Vectors: Vectors[int64]{Bounds: []int{0, 1001, 2003, 3006}}, depth: 2, block: 8 * n * cacheLine, stride: 8 * cacheLine, width: 7 * cacheLine / 8}
		for k := range 5 {
			for chunk := range n {
				first, end := s.piece(k, chunk)
				slot := s.pieceIn(k, l.rank, chunk)
				if got, want := addressOf(kernel.Bytes(slot))%cacheLine, uintptr(first*8%cacheLine); got != want || len(slot) != end-first {
					t.Fatalf("elements %d to %d: %d of them begin at byte %d of a line, want %d", first, end, len(slot), got, want)
				}
			}
		}
	}
}

// With many ranks a block may be shorter than the part that a rank usually reduces at a time.
func TestShortBlocksWithArenas(t *testing.T) {
	const n, length = 5, 5 * 4200
	memory, arenas := Ordinary(Size(n)), make([][]byte, n)
	for r := range arenas {
		arenas[r] = Ordinary(8 * length)
	}
	errs := each(n, func(rank int) error {
		s, err := attach(memory, arenas, n, rank)
		if err != nil {
			return err
		}
		s.blockBytes = 4 << 10
		l := s.Lane(0, upTo(n))
		v := kernel.Elements[int64](arenas[rank])
		for i := range v {
			v[i] = input(rank, i)
		}
		l.PostVectors(&Header{1}, kernel.Bytes(v), Offsets{Dst: 1, Src: 1})
		if err := AllReduce(l, Vectors[int64]{Dst: v, Src: v, Reduce: Reducer[int64]{Pair: join}}, Everyone); err != nil {
			return err
		}
		for i := rank; i < length; i += n + 1 {
			if err := folded(v[i:i+1], n, i); err != nil {
				return fmt.Errorf("rank %d: %w", rank, err)
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// If one rank posts another header, every rank that looks at it finds the mismatch at once.
func TestMismatch(t *testing.T) {
	lanes := group(t, 3)
	errs := each(3, func(rank int) error {
		lanes[rank].Post(&Header{7, uint64(rank / 2)}, Offsets{})
		return lanes[rank].AwaitAll()
	})
	for rank, err := range errs {
		var m *MismatchError
		if !errors.As(err, &m) {
			t.Fatalf("rank %d: %v", rank, err)
		}
		if rank < 2 && m.Rank != 2 || rank == 2 && m.Rank != 0 || m.Header[0] != 7 {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Revoke ends all waits, including those that sleep already and later ones. Gone ends the waits for one rank, except for waits
// that the rank has already satisfied.
func TestRevokeAndGone(t *testing.T) { revokeAndGone(t, group(t, 3)) }

func revokeAndGone(t *testing.T, lanes []*Lane) {
	t.Helper()
	asleep := make(chan struct{}, 2)
	for _, l := range lanes {
		l.Watch = func(rank int) {
			if rank >= 0 {
				asleep <- struct{}{}
			}
		}
	}
	lanes[2].Post(&Header{1}, Offsets{}) // rank 2 takes part in the first call, not in the second
	errs := make(chan error, 2)
	for _, l := range lanes[:2] {
		go func() {
			l.Post(&Header{1}, Offsets{})
			err := l.AwaitAll()
			l.Post(&Header{2}, Offsets{})
			errs <- errors.Join(err, l.AwaitAll())
		}()
	}
	<-asleep
	<-asleep
	lanes[0].segment.Gone(2)
	var gone *GoneError
	if err := <-errs; !errors.As(err, &gone) || gone.Rank != 2 {
		t.Errorf("%v, want the loss of rank 2", err)
	}
	lanes[1].segment.Revoke()
	if err := <-errs; !errors.Is(err, ErrRevoked) {
		t.Errorf("%v, want revoked", err)
	}
	if err := lanes[1].AwaitAll(); !errors.Is(err, ErrRevoked) {
		t.Errorf("afterwards: %v, want revoked", err)
	}
}

func TestAttachRefuses(t *testing.T) {
	memory := Ordinary(Size(2))
	for name, f := range map[string]func() (*Segment, error){
		"rank":      func() (*Segment, error) { return attach(memory, nil, 2, 2) },
		"ranks":     func() (*Segment, error) { return attach(memory, nil, MaxRanks+1, 0) },
		"size":      func() (*Segment, error) { return attach(memory[:len(memory)-1], nil, 2, 0) },
		"alignment": func() (*Segment, error) { return attach(Ordinary(Size(2) + 8)[8:], nil, 2, 0) },
		"arenas":    func() (*Segment, error) { return attach(memory, make([][]byte, 1), 2, 0) },
	} {
		if s, err := f(); err == nil {
			t.Errorf("%s: %v", name, s)
		}
	}
}

// For any number of ranks the parts of a segment do not overlap, and begin at cache lines.
func TestLayout(t *testing.T) {
	for n := 1; n <= MaxRanks; n++ {
		memory := Ordinary(Size(n))
		if Size(n) > 300<<20 {
			t.Fatalf("%d ranks take %d bytes", n, Size(n))
		}
		s, err := attach(memory, nil, n, 0)
		if err != nil {
			t.Fatal(err)
		}
		if w := s.blockBytes / maxBlocks / n &^ (cacheLine - 1); w < 2*cacheLine {
			t.Fatalf("%d ranks: a chunk has %d bytes of a block", n, w)
		}
		last := s.blocks(Lanes-1, n-1)
		last[len(last)-1] = 1
		if rankAreaSize(n)%cacheLine != 0 {
			t.Fatalf("%d ranks: places of %d bytes", n, rankAreaSize(n))
		}
		if n > 4 {
			n += 6
		}
	}
}
