package collective

import (
	"fmt"
	"slices"
)

// ringOrder is the order in which ring algorithms visit the ranks. The zero value is the
// order of ranks.
type ringOrder struct {
	ranks []int  // begins with rank 0; nil for the order of ranks
	hash  uint32 // hash of ranks
	err   error  // the user's order is not a permutation of the ranks
}

// newRingOrder returns the ring order for an order of n ranks. For an invalid order it sets err in
// the result, because With cannot return an error: the next call with that order fails and revokes.
func newRingOrder(order []int, n int) ringOrder {
	own := make([]int, n)
	for i := range own {
		own[i] = i
	}
	if !slices.Equal(slices.Sorted(slices.Values(order)), own) {
		return ringOrder{err: fmt.Errorf("%w: order %v of %d ranks, want each rank once", ErrArgument, order, n)}
	}
	// Rotations of an order are the same ring and need the same hash, so the order is rotated to
	// begin with rank 0.
	at := slices.Index(order, 0)
	turned := slices.Concat(order[at:], order[:at])
	if slices.Equal(turned, own) {
		return ringOrder{}
	}
	return ringOrder{ranks: turned, hash: layout(turned)}
}

// layout combines the hash of a call's counts with the hash of the order, so that ranks
// with different orders find a mismatch.
func (r ringOrder) layout(counts uint32) uint32 {
	if r.ranks == nil {
		return counts
	}
	return layout([]int{int(counts), int(r.hash)})
}

// neighbours returns the ranks before and after a rank in the ring of n ranks.
func (r ringOrder) neighbours(rank, n int) (left, right int) {
	if r.ranks == nil {
		return (rank - 1 + n) % n, (rank + 1) % n
	}
	at := slices.Index(r.ranks, rank)
	return r.ranks[(at-1+n)%n], r.ranks[(at+1)%n]
}
