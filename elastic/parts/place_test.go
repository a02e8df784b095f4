package parts

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// random returns holdings of up to 5 ranks and 7 pieces, as they are after deaths and joins.
func random(r *rand.Rand) *holdings {
	n, pieces := 1+r.IntN(5), 1+r.IntN(7)
	s := &holdings{holders: make([][]int, pieces), owner: make([]int, pieces), weights: make([]int, n), hosts: make([]int, n)}
	equal := r.IntN(2) == 0
	for rank := range n {
		s.weights[rank], s.hosts[rank] = 1, r.IntN(3)
		if !equal {
			s.weights[rank] = r.IntN(4)
		}
	}
	s.weights[r.IntN(n)] = 1
	for k := range pieces {
		s.holders[k] = r.Perm(n)[:r.IntN(min(3, n)+1)]
		slices.Sort(s.holders[k])
		s.owner[k] = -1
		if h := s.holders[k]; len(h) > 0 && r.IntN(3) > 0 {
			s.owner[k] = h[r.IntN(len(h))]
		}
	}
	return s
}

// fewest is the slow twin of the placement of owners: it tries all placements with the quotas, and
// returns the smallest number of pieces that go to a rank that does not hold them.
func fewest(s *holdings, quota []int, k int) int {
	if k == len(s.holders) {
		return 0
	}
	best := len(s.holders) + 1
	for r := range quota {
		if quota[r] == 0 {
			continue
		}
		quota[r]--
		moves := fewest(s, quota, k+1)
		quota[r]++
		if !slices.Contains(s.holders[k], r) {
			moves++
		}
		best = min(best, moves)
	}
	return best
}

// moves counts the pieces that must be sent.
func moves(s *holdings, out [][]int, first, last int) (n int) {
	for k, h := range out {
		for _, r := range h[first:last] {
			if !slices.Contains(s.holders[k], r) {
				n++
			}
		}
	}
	return n
}

// staying returns the number of ranks that get pieces.
func staying(s *holdings) (n int) {
	for _, w := range s.weights {
		n += min(w, 1)
	}
	return n
}

func TestPlaceMovesAsFewAsPossible(t *testing.T) {
	for seed := range uint64(3000) {
		s := random(rand.New(rand.NewPCG(seed, 1)))
		out := s.place(0)
		quota := make([]int, len(s.weights))
		for _, h := range out {
			quota[h[0]]++
		}
		empty := &matching{holdings: s, out: make([][]int, len(out))}
		if want := s.quotas(empty.held()); !slices.Equal(quota, want) {
			t.Fatalf("seed %d: the ranks own %v, want %v", seed, quota, want)
		}
		if got, want := moves(s, out, 0, 1), fewest(s, quota, 0); got != want {
			t.Fatalf("seed %d: %d moves, %d suffice: %+v -> %v", seed, got, want, *s, out)
		}
	}
}

// Holders of a piece differ, ranks of weight 0 hold nothing, and copies are on other hosts as far as
// there are any.
func TestPlaceHolders(t *testing.T) {
	for seed := range uint64(3000) {
		s := random(rand.New(rand.NewPCG(seed, 2)))
		copies := int(seed % 4)
		for k, h := range s.place(copies) {
			if want := min(copies+1, staying(s)); len(h) != want {
				t.Fatalf("seed %d: piece %d has the holders %v, want %d", seed, k, h, want)
			}
			for i, r := range h {
				if s.weights[r] == 0 || slices.Contains(h[:i], r) {
					t.Fatalf("seed %d: piece %d has the holders %v for the weights %v", seed, k, h, s.weights)
				}
				for o, w := range s.weights {
					used := func(r int) bool {
						return slices.ContainsFunc(h[:i], func(e int) bool { return s.hosts[e] == s.hosts[r] })
					}
					if w > 0 && used(r) && !used(o) {
						t.Fatalf("seed %d: piece %d has the holders %v on the hosts %v, though rank %d is elsewhere", seed, k, h, s.hosts, o)
					}
				}
			}
		}
	}
}

// after returns the holdings after the moves of a placement.
func after(s *holdings, out [][]int) *holdings {
	next := &holdings{weights: slices.Clone(s.weights), hosts: s.hosts}
	for _, h := range out {
		next.owner = append(next.owner, h[0])
		next.holders = append(next.holders, slices.Sorted(slices.Values(h)))
	}
	return next
}

// without returns the holdings without a rank.
func without(s *holdings, gone int) *holdings {
	next := &holdings{weights: slices.Delete(slices.Clone(s.weights), gone, gone+1), hosts: slices.Delete(slices.Clone(s.hosts), gone, gone+1)}
	for k, h := range s.holders {
		var left []int
		for _, r := range h {
			if r != gone {
				left = append(left, r-min(1, max(0, r-gone)))
			}
		}
		owner := s.owner[k]
		if owner == gone {
			owner = -1
		}
		next.holders = append(next.holders, left)
		next.owner = append(next.owner, owner-min(1, max(0, owner-gone)))
	}
	return next
}

// A member that leaves has handed over: when it is gone, owners stay and no piece moves again. Only a
// copy in a hundred may move, to even out.
func TestPlaceAfterLeave(t *testing.T) {
	copied, moved := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		s, copies := random(r), int(seed%3)
		if staying(s) < 2 {
			continue
		}
		s = after(s, s.place(copies))
		leaver := r.IntN(len(s.weights))
		if staying(s) == 1 && s.weights[leaver] > 0 {
			continue
		}
		s.leave([]int{leaver})
		handed := after(s, s.place(copies))
		for k, h := range handed.holders {
			if slices.Contains(h, leaver) {
				t.Fatalf("seed %d: the leaver still holds piece %d: %v", seed, k, h)
			}
		}
		left := without(handed, leaver)
		out := left.place(copies)
		if n := moves(left, out, 0, 1); n > 0 {
			t.Errorf("seed %d: %d owners move after the leave: %+v -> %v", seed, n, *left, out)
		}
		copied, moved = copied+len(out)*(len(out[0])-1), moved+moves(left, out, 1, len(out[0]))
		for k, h := range out {
			if h[0] != left.owner[k] {
				t.Errorf("seed %d: piece %d goes from owner %d to %d", seed, k, left.owner[k], h[0])
			}
		}
	}
	if moved*100 > copied {
		t.Errorf("%d of %d copies move", moved, copied)
	}
}

// Of equal members each gets as many pieces as the others, give or take one, also as copies on one host.
func TestPlaceIsEven(t *testing.T) {
	for n := 1; n <= 6; n++ {
		s := &holdings{holders: make([][]int, 64), owner: slices.Repeat([]int{-1}, 64), weights: slices.Repeat([]int{1}, n), hosts: make([]int, n)}
		owned, held := make([]int, n), make([]int, n)
		for _, h := range s.place(1) {
			owned[h[0]]++
			for _, r := range h {
				held[r]++
			}
		}
		if slices.Max(owned)-slices.Min(owned) > 1 || slices.Max(held)-slices.Min(held) > 2 {
			t.Errorf("%d ranks own %v pieces and hold %v", n, owned, held)
		}
	}
}

func TestPlaceIsFastEnough(t *testing.T) {
	// 20,000 pieces of 40 ranks, of which a quarter is gone: the paths must not be searched again and again.
	s := &holdings{holders: make([][]int, 20000), owner: make([]int, 20000), weights: slices.Repeat([]int{3}, 40), hosts: make([]int, 40)}
	for k := range s.holders {
		s.owner[k] = k % 30
		s.holders[k] = slices.Sorted(slices.Values([]int{k % 30, (k + 1 + k/30%29) % 30}))
	}
	if out := s.place(1); moves(s, out, 0, 2) == 0 {
		t.Fatal("nothing moves to the new ranks")
	}
}

// Whatever members tell, each piece gets as many holders as there are, and they differ.
func FuzzPlace(f *testing.F) {
	f.Add(uint8(3), uint8(9), uint8(1), []byte("what three members tell"))
	f.Fuzz(func(t *testing.T, n, pieces, copies uint8, told []byte) {
		members, size := 1+int(n%6), wordBits+(2*int(pieces)+63)/64
		hosts := make([]int, members)
		var leaving []int
		for r := range hosts {
			hosts[r] = r * int(copies%3) / 2
			if int(n)>>r&8 != 0 {
				leaving = append(leaving, r)
			}
		}
		s := newHoldings(int(pieces), hosts)
		for r := range members {
			words := make([]uint64, size)
			for i := range words {
				if len(told) >= 8 {
					words[i], told = binary.LittleEndian.Uint64(told), told[8:]
				}
			}
			s.read(r, words)
		}
		s.leave(leaving)
		for k, h := range s.place(int(copies)) {
			for i, r := range h {
				if s.weights[r] == 0 || slices.Contains(h[:i], r) {
					t.Fatalf("piece %d has the holders %v", k, h)
				}
			}
			if len(h) != min(int(copies)+1, staying(s)) {
				t.Fatalf("piece %d has the holders %v", k, h)
			}
		}
	})
}
