package collective

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Chunk gives each rank as many elements as if the elements were dealt out round robin.
func TestChunk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length, size := rapid.IntRange(0, 300).Draw(t, "length"), rapid.IntRange(1, 40).Draw(t, "size")
		dealt := make([]int, size)
		for i := range length {
			dealt[i%size]++
		}
		at := 0
		for rank, want := range dealt {
			first, end := Chunk(length, size, rank)
			if first != at || end-first != want {
				t.Fatalf("rank %d: [%d, %d), want [%d, %d)", rank, first, end, at, at+want)
			}
			at = end
		}
	})
}

func TestOffsets(t *testing.T) {
	if got := offsets([]int{2, 0, 3}); !slices.Equal(got, []int{0, 2, 2, 5}) {
		t.Errorf("got %v", got)
	}
	if got := offsets(equalCounts(3, 4)); !slices.Equal(got, []int{0, 4, 8, 12}) {
		t.Errorf("got %v", got)
	}
}

// Different counts have different layouts, even if their sums agree.
func TestLayout(t *testing.T) {
	if layout(nil) != 0 {
		t.Error("a layout without counts")
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 6).Draw(t, "a")
		b := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 6).Draw(t, "b")
		if layout(a) == 0 || (layout(a) == layout(b)) != slices.Equal(a, b) {
			t.Fatalf("%v: %x, %v: %x", a, layout(a), b, layout(b))
		}
	})
}

func TestTotal(t *testing.T) {
	g := group{size: 3}
	if got, err := g.total([]int{1, 0, 4}); got != 5 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
	for _, counts := range [][]int{nil, {1, 2}, {1, 2, 3, 4}, {1, -1, 3}} {
		if _, err := g.total(counts); !errors.Is(err, ErrArgument) {
			t.Errorf("%v: %v", counts, err)
		}
	}
}

// Communicators made from one parent by different calls, or for different colors, have
// different IDs, and none has the ID of the parent.
func TestChildIDs(t *testing.T) {
	seen := map[uint64]bool{0: true}
	for _, parent := range []uint64{0, 1, 1 << 63} {
		for seq := range uint32(40) {
			for color := range 40 {
				id := childID(parent, seq, color)
				if seen[id] {
					t.Fatalf("child of %d by call %d for color %d: %d stands twice", parent, seq, color, id)
				}
				seen[id] = true
			}
		}
	}
}

// The members of the subgroup are in the order of the ranks. Each member contributes its own vector
// and, if its left neighbour is no member, the vector of that neighbour.
func TestSubgroup(t *testing.T) {
	for n := 1; n <= 70; n++ {
		g := subgroup{size: 1}
		for 2*g.size <= n {
			g.size *= 2
		}
		g.paired = 2 * (n - g.size)
		next := 0
		for i := range g.size {
			rank := g.commRank(i)
			if rank != next && (rank != next+1 || rank >= g.paired) {
				t.Fatalf("n=%d: member %d is rank %d after %d", n, i, rank, next-1)
			}
			next = rank + 1
		}
		if next != n {
			t.Fatalf("n=%d: the last member is rank %d", n, next-1)
		}
	}
}

// A block of a blockTree consists of the root of the block and the blocks of its children,
// down to single ranks: every rank is in the tree once, below its parent.
func TestBlockTree(t *testing.T) {
	for n := 1; n <= 33; n++ {
		for root := range n {
			owned := make([]int, n) // how many blocks a rank begins
			visitBlocks(t, n, root, root, owned)
			if slices.Min(owned) != 1 || slices.Max(owned) != 1 {
				t.Fatalf("n=%d root=%d: %v", n, root, owned)
			}
		}
	}
}

// visitBlocks walks down from rank and returns the number of ranks in its block.
func visitBlocks(t *testing.T, n, root, rank int, owned []int) int {
	o := &operation{Comm: &Comm{group: group{rank: rank, size: n}}}
	tree := newBlockTree(o, offsets(equalCounts(n, 1)), root)
	owned[rank]++
	extent := 1
	for d := 1; d < tree.extent; d *= 2 {
		if extent != d {
			t.Fatalf("n=%d root=%d rank=%d: child at distance %d after %d ranks", n, root, rank, d, extent)
		}
		extent += visitBlocks(t, n, root, (rank+d)%n, owned)
	}
	if extent != tree.extent || tree.width(extent) != extent {
		t.Fatalf("n=%d root=%d rank=%d: block of %d ranks, want %d", n, root, rank, extent, tree.extent)
	}
	return extent
}

func TestHalve(t *testing.T) {
	for n := range 10 {
		w := make([]int, n)
		for i := range w {
			w[i] = i
		}
		low, high := halve(w, false, 1)
		high2, low2 := halve(w, true, 1)
		if !slices.Equal(append(slices.Clone(low), high...), w) || !slices.Equal(low, low2) || !slices.Equal(high, high2) {
			t.Errorf("%v became %v and %v, or %v and %v", w, low, high, low2, high2)
		}
		if len(low)-len(high) != n%2 {
			t.Errorf("%d elements became %d and %d", n, len(low), len(high))
		}
	}
}

// segmentSizes returns the maximum message sizes of interruptible calls and of other calls, in
// bytes.
func segmentSizes(segment int, beta float64) (short, usual int) {
	c := &Comm{endpoint: &endpoint{opts: Options{Segment: segment, Cost: Cost{Beta: beta}}}, callOptions: callOptions{segment: segment}}
	return c.With(CallOptions{Interruptible: true}).With(CallOptions{Priority: 2}).segment, c.segment
}

func TestSegmentBytes(t *testing.T) {
	for _, c := range []struct {
		segment int
		beta    float64
		want    int
	}{
		{256 << 10, DefaultCost().Beta, 256 << 10},
		{256 << 10, 1e-8, 64 << 10}, // 100 MB/s
		{256 << 10, 1e-7, 16 << 10},
		{256 << 10, 1, 16 << 10},
		{16 << 20, 1e-9, 512 << 10},
		{16 << 20, 1e-10, 8 << 20},
		{16 << 20, 1, 16 << 10},
		{8, 1, 8},
		{24, 1, 24},
		{16 << 10, 1, 16 << 10},
		{32<<10 - 8, 1, 32<<10 - 8},
		{32<<10 + 8, 1, 16 << 10},
		{5 * 8008, 1, 20016}, // and not 20020, half of the segment, which is no multiple of 8
	} {
		if got, usual := segmentSizes(c.segment, c.beta); got != c.want || usual != c.segment {
			t.Errorf("segments of %d bytes, %v s/B: pieces of %d, want %d; usually of %d", c.segment, c.beta, got, c.want, usual)
		}
	}
}

// Pieces are whole words. They are no smaller than necessary, and either short enough in
// time or of the minimum size.
func TestSegmentBytesOfAnySegment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := 8 * rapid.IntRange(1, maxSegment/8).Draw(t, "words")
		beta := rapid.OneOf(rapid.Float64Range(0, 1e-8), rapid.Float64Range(0, 1e-6)).Draw(t, "seconds per byte")
		slow := func(piece int) bool { return float64(piece)*beta > segmentTime }
		got, _ := segmentSizes(segment, beta)
		if got%8 != 0 || got > segment || got < min(segment, minSegment) {
			t.Fatalf("pieces of %d bytes", got)
		}
		if slow(got) && got >= 2*minSegment {
			t.Fatalf("pieces of %d bytes take longer than %v s", got, segmentTime)
		}
		if before := min(segment, 2*got+8); got < segment && (!slow(before) || before < 2*minSegment) {
			t.Fatalf("pieces of %d bytes, those of %d would do", got, before)
		}
	})
}
