package collective

import (
	"fmt"
	"slices"
)

// ringOrder is the order in which ring algorithms go round. The zero value is that of
// the ranks.
type ringOrder struct {
	ranks []int  // nil for that of the ranks
	hash  uint32 // of ranks
	wrong error  // why the user's order is none
}

// newRingOrder returns an order of n ranks.
func newRingOrder(order []int, n int) ringOrder {
	own := make([]int, n)
	for i := range own {
		own[i] = i
	}
	if !slices.Equal(slices.Sorted(slices.Values(order)), own) {
		return ringOrder{wrong: fmt.Errorf("%w: order %v of %d ranks, want each of them once", ErrArgument, order, n)}
	}
	// One ring has one hash, wherever its order begins.
	at := slices.Index(order, 0)
	turned := slices.Concat(order[at:], order[:at])
	if slices.Equal(turned, own) {
		return ringOrder{}
	}
	return ringOrder{ranks: turned, hash: layout(turned)}
}

// layout adds the order to the layout of a call.
func (r ringOrder) layout(counts uint32) uint32 {
	if r.ranks == nil {
		return counts
	}
	return layout([]int{int(counts), int(r.hash)})
}

// neighbours returns the ranks before and after one of n.
func (r ringOrder) neighbours(rank, n int) (left, right int) {
	if r.ranks == nil {
		return (rank - 1 + n) % n, (rank + 1) % n
	}
	at := slices.Index(r.ranks, rank)
	return r.ranks[(at-1+n)%n], r.ranks[(at+1)%n]
}
