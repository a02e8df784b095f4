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
}

// InOrder returns the same communicator with another order of its ring: algorithms of
// that kind go from each rank of order to the next, and from the last to the first. All
// ranks give the same order, which has each of them once; ring.Order finds a good one.
// Calls take their places in the same sequence. Ranks whose orders differ find a
// mismatch. Other algorithms do as before, and communicators made from this one have
// orders of their own.
//
// The result of a call is the same for every order, but for the last bits of
// floating-point sums.
func (c *Comm) InOrder(order []int) (*Comm, error) {
	if !c.made() {
		return nil, fmt.Errorf("collective: order: %w", errNil)
	}
	sorted := slices.Sorted(slices.Values(order))
	if !slices.Equal(sorted, c.ownOrder()) {
		return nil, fmt.Errorf("collective: order %v of %d ranks: %w", order, c.size, ErrArgument)
	}
	d := *c
	d.order = ringOrder{}
	// One ring has one hash, wherever its order begins.
	at := slices.Index(order, 0)
	if turned := slices.Concat(order[at:], order[:at]); !slices.Equal(turned, sorted) {
		d.order = ringOrder{turned, layout(turned)}
	}
	return &d, nil
}

// ownOrder returns the ranks in their own order.
func (c *Comm) ownOrder() []int {
	ranks := make([]int, c.size)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
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
