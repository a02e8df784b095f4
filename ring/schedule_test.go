package ring

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// plan holds the schedules of all ranks for one call, and the expected result.
type plan struct {
	name     string
	all      []schedule
	complete func(rank, chunk int) bool // whether the rank must have the result of the chunk at the end
	whole    uint64                     // bit set of the ranks that contribute to the result; 0 if only the chunk's rank does
}

// everySchedule returns the schedules of all ranks.
func everySchedule(size int, f func(rank int) schedule) []schedule {
	all := make([]schedule, size)
	for rank := range all {
		all[rank] = f(rank)
	}
	return all
}

// plans returns a plan of each call.
func plans(bounds []int, segment, root int) []plan {
	size, n := len(bounds)-1, bounds[len(bounds)-1]
	everywhere := func(rank, chunk int) bool { return true }
	everyone := uint64(1)<<size - 1
	return []plan{
		{"allreduce", everySchedule(size, func(r int) schedule { return allReduce(turn{place: r}, bounds, segment) }), everywhere, everyone},
		{"reducescatter", everySchedule(size, func(r int) schedule { return reduceScatter(turn{place: r}, bounds, segment) }),
			func(rank, chunk int) bool { return rank == chunk }, everyone},
		{"allgather", everySchedule(size, func(r int) schedule { return allGather(turn{place: r}, bounds, segment) }), everywhere, 0},
		{"broadcast", everySchedule(size, func(r int) schedule { return broadcast(modulo(r-root, size), size, n, segment) }),
			func(rank, chunk int) bool { return chunk == 1 }, 1 << root},
	}
}

// sendsOf lists the segments that a schedule sends.
func sendsOf(s schedule) (steps []step) {
	_ = s.eachSend(func(st step) error { steps = append(steps, st); return nil })
	return steps
}

// receivesOf lists the segments that a schedule receives.
func receivesOf(s schedule) (steps []step) {
	_ = s.eachReceive(func(st step) error { steps = append(steps, st); return nil })
	return steps
}

// replay simulates the ranks of a ring. Each element is the set of the ranks that have contributed to it.
type replay struct {
	sends, receives [][]step
	sent, received  []int
	sets            [][][]uint64 // by rank, chunk, element
}

// newReplay returns the state before the first transfer: each rank has only its own elements.
func newReplay(p plan) *replay {
	r := &replay{sent: make([]int, len(p.all)), received: make([]int, len(p.all))}
	for rank, s := range p.all {
		r.sends, r.receives = append(r.sends, sendsOf(s)), append(r.receives, receivesOf(s))
		sets := make([][]uint64, len(s.bounds)-1)
		for c := range sets {
			sets[c] = make([]uint64, s.length(c))
			for i := range sets[c] {
				sets[c][i] = 1 << rank
			}
		}
		r.sets = append(r.sets, sets)
	}
	return r
}

// possible reports whether a rank can transfer its next segment to its right neighbour. Without
// buffers both ranks must be ready.
func (r *replay) possible(rank int) bool {
	right := (rank + 1) % len(r.sends)
	return r.sent[rank] < len(r.sends[rank]) && r.received[right] < len(r.receives[right]) &&
		r.sends[rank][r.sent[rank]].after <= r.received[rank] &&
		r.receives[right][r.received[right]].after <= r.sent[right]
}

// transfer transfers a segment. It returns false if the schedules of the two ranks disagree about the segment.
func (r *replay) transfer(rank int) bool {
	right := (rank + 1) % len(r.sends)
	out, in := r.sends[rank][r.sent[rank]], r.receives[right][r.received[right]]
	r.sent[rank]++
	r.received[right]++
	if out.chunk != in.chunk || out.lo != in.lo || out.hi != in.hi {
		return false
	}
	for i := out.lo; i < out.hi; i++ {
		set := r.sets[rank][out.chunk][i]
		if in.fold {
			set |= r.sets[right][in.chunk][i]
		}
		r.sets[right][in.chunk][i] = set
	}
	return true
}

// run makes possible transfers in random order, until none is possible.
func (r *replay) run(t *rapid.T, name string) {
	for {
		var ranks []int
		for rank := range r.sends {
			if r.possible(rank) {
				ranks = append(ranks, rank)
			}
		}
		if len(ranks) == 0 {
			return
		}
		rank := rapid.SampledFrom(ranks).Draw(t, "rank")
		if !r.transfer(rank) {
			t.Fatalf("%s: rank %d sends another segment than its neighbour receives", name, rank)
		}
	}
}

// drawBounds draws chunks of up to 5 elements for up to 6 ranks.
func drawBounds(t *rapid.T) []int {
	counts := rapid.SliceOfN(rapid.IntRange(0, 5), 2, 6).Draw(t, "counts")
	bounds := []int{0}
	for i, n := range counts {
		bounds = append(bounds, bounds[i]+n)
	}
	return bounds
}

// Without buffers, and in any order of transfers, no schedule deadlocks. Each schedule ends with
// the expected result.
func TestScheduleReplayed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := drawBounds(t)
		segment := rapid.IntRange(1, 6).Draw(t, "segment")
		root := rapid.IntRange(0, len(bounds)-2).Draw(t, "root")
		for _, p := range plans(bounds, segment, root) {
			r := newReplay(p)
			r.run(t, p.name)
			for rank, s := range p.all {
				if r.sent[rank] != len(r.sends[rank]) || r.received[rank] != len(r.receives[rank]) {
					t.Fatalf("%s: rank %d is stuck", p.name, rank)
				}
				p.check(t, rank, s, r.sets[rank])
			}
		}
	})
}

// check compares the elements that a rank has at the end with the expected result.
func (p plan) check(t *rapid.T, rank int, s schedule, sets [][]uint64) {
	for c := range len(s.bounds) - 1 {
		whole := p.whole
		if whole == 0 { // an all-gather: chunk c comes from rank c
			whole = 1 << c
		}
		for i, set := range sets[c] {
			if p.complete(rank, c) && set != whole {
				t.Fatalf("%s: rank %d has %b of chunk %d element %d, want %b", p.name, rank, set, c, i, whole)
			}
		}
	}
}

// released agrees with a direct count: memory is overwritten only after every send that reads it
// has returned.
func TestScheduleReleases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := drawBounds(t)
		segment := rapid.IntRange(1, 6).Draw(t, "segment")
		for _, p := range plans(bounds, segment, 0)[:2] {
			for rank, s := range p.all {
				sends := sendsOf(s)
				for _, in := range receivesOf(s) {
					want := 0
					for i, out := range sends {
						if out.hop < in.hop-s.reuse || out.hop == in.hop-s.reuse && out.lo < in.hi {
							want = i + 1
						}
					}
					if in.after != want {
						t.Fatalf("%s: rank %d hop %d waits for %d sends, want %d", p.name, rank, in.hop, in.after, want)
					}
				}
			}
		}
	})
}

// The schedule of a ring of four is as documented: at hop h rank 1 sends chunk 1-h and receives chunk 1-h-1.
func TestScheduleOfFour(t *testing.T) {
	s := allReduce(turn{place: 1}, []int{0, 1, 2, 3, 4}, 1)
	var sent, received []int
	for _, st := range sendsOf(s) {
		sent = append(sent, st.chunk)
	}
	for _, st := range receivesOf(s) {
		received = append(received, st.chunk)
		if st.fold != (st.hop < 3) {
			t.Errorf("hop %d folds: %v", st.hop, st.fold)
		}
	}
	if want := []int{1, 0, 3, 2, 1, 0}; !slices.Equal(sent, want) {
		t.Errorf("sends chunks %v, want %v", sent, want)
	}
	if want := []int{0, 3, 2, 1, 0, 3}; !slices.Equal(received, want) {
		t.Errorf("receives chunks %v, want %v", received, want)
	}
}
