package transfer

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// slowPlan is a simple, slow model of plan: it records from which donors each chunk is requested,
// and counts on demand.
type slowPlan struct {
	done    map[int]bool
	holders map[int]map[string]bool
}

// open returns the chunks that have neither arrived nor been requested.
func (s *slowPlan) open(chunks int) []int {
	var out []int
	for i := range chunks {
		if !s.done[i] && len(s.holders[i]) == 0 {
			out = append(out, i)
		}
	}
	return out
}

// check fails the test unless the model allows the range.
func (s *slowPlan) check(t *rapid.T, chunks int, donor string, first, count int) {
	open := s.open(chunks)
	for i := first; i < first+count; i++ {
		if s.done[i] || s.holders[i][donor] {
			t.Fatalf("chunk %d for %s: it is done, or asked for already", i, donor)
		}
		if len(open) > 0 && !slices.Contains(open, i) {
			t.Fatalf("chunk %d is asked for twice while %d are open", i, len(open))
		}
	}
	if count > 0 && len(open) > 0 && first != open[0] {
		t.Fatalf("range begins at %d, not at the first open chunk, %d", first, open[0])
	}
	useful := false
	for i := range chunks {
		useful = useful || !s.done[i] && !s.holders[i][donor]
	}
	if useful != (count > 0) {
		t.Fatalf("%d chunks for %s; is there something to do: %v", count, donor, useful)
	}
}

func TestPlan(t *testing.T) {
	type ranged struct {
		donor        string
		first, count int
	}
	rapid.Check(t, func(t *rapid.T) {
		chunks := rapid.IntRange(0, 60).Draw(t, "chunks")
		donors := rapid.IntRange(1, 5).Draw(t, "donors")
		p := newPlan(chunks)
		s := &slowPlan{map[int]bool{}, map[int]map[string]bool{}}
		for i := range chunks {
			s.holders[i] = map[string]bool{}
		}
		var out []ranged
		t.Repeat(map[string]func(*rapid.T){
			"next": func(t *rapid.T) {
				donor := strconv.Itoa(rapid.IntRange(0, donors-1).Draw(t, "donor"))
				if slices.ContainsFunc(out, func(r ranged) bool { return r.donor == donor }) {
					return // one range at a time
				}
				first, count := p.next(donor, donors)
				s.check(t, chunks, donor, first, count)
				for i := first; i < first+count; i++ {
					s.holders[i][donor] = true
				}
				if count > 0 {
					out = append(out, ranged{donor, first, count})
				}
			},
			"finish and release": func(t *rapid.T) {
				if len(out) == 0 {
					return
				}
				k := rapid.IntRange(0, len(out)-1).Draw(t, "range")
				r := out[k]
				out = slices.Delete(out, k, k+1)
				sent := rapid.IntRange(0, r.count).Draw(t, "sent")
				for i := r.first; i < r.first+sent; i++ {
					if p.finish(i) == s.done[i] {
						t.Fatalf("chunk %d: is it new", i)
					}
					s.done[i] = true
				}
				p.release(r.donor, r.first, r.count)
				for i := r.first; i < r.first+r.count; i++ {
					delete(s.holders[i], r.donor)
				}
			},
			"": func(t *rapid.T) {
				if p.left != chunks-len(s.done) || p.open != len(s.open(chunks)) {
					t.Fatalf("%d left and %d open, not %d and %d", p.left, p.open, chunks-len(s.done), len(s.open(chunks)))
				}
				if p.needs(0, chunks) != (p.left > 0) {
					t.Fatal("needs")
				}
			},
		})
	})
}

func TestPlanRangesShrink(t *testing.T) {
	p := newPlan(100)
	var sizes []int
	for p.open > 0 {
		_, n := p.next("a", 4)
		sizes = append(sizes, n)
	}
	if sizes[0] != 13 || sizes[len(sizes)-1] != 1 || !slices.IsSortedFunc(sizes, func(a, b int) int { return b - a }) {
		t.Errorf("ranges of %v chunks", sizes)
	}
}
