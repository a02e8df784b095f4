package ledger

import (
	"slices"

	"github.com/elrun/elrun/internal/apportion"
)

// Assign shares out the microbatches of a step of which the ranks hold some already:
// held[r] is what rank r has computed, and nil where that is nothing. shares[r] is all
// that rank r is to contribute. Every microbatch is in exactly one share.
//
// Who holds a microbatch keeps it. The others go to those with the least in proportion
// to what is wanted of them, so that the sizes of the shares come as close to wanted as
// what is held allows, and each rank gets neighbouring ones; ties go to low ranks.
// wanted[r] is how many rank r should have in all. It need not add up to the
// microbatches: they are weights. Where all of it is 0 or wanted is nil, all ranks want
// the same. Where nobody holds anything and wanted adds up, the shares have those sizes,
// one rank after the other.
//
// A contribution cannot be taken apart. So a rank whose held microbatches overlap with
// those of a lower rank, or are none of the step's, has to throw all of them away:
// kept[r] is false. It panics without ranks, with a negative number of microbatches or
// with a wanted of another length than held.
func Assign(held []Set, wanted []int, microbatches int) (shares []Set, kept []bool) {
	if len(held) == 0 || microbatches < 0 {
		panic("ledger: Assign needs at least one rank and no negative number of microbatches")
	}
	shares, kept = make([]Set, len(held)), make([]bool, len(held))
	taken := NewSet(microbatches)
	totals := make([]int, len(held))
	for r, h := range held {
		shares[r] = NewSet(microbatches)
		kept[r] = h.within(microbatches) && !h.overlaps(taken)
		if !kept[r] {
			continue
		}
		for i := range min(len(h), len(taken)) {
			shares[r][i], taken[i] = h[i], taken[i]|h[i]
		}
		totals[r] = h.Len()
	}
	next := 0
	for r, n := range apportion.Fill(totals, weights(wanted, len(held)), microbatches-taken.Len()) {
		for ; n > 0; next++ {
			if !taken.Has(next) {
				shares[r].Add(next)
				n--
			}
		}
	}
	return shares, kept
}

// weights is wanted, or that all ranks weigh the same if it says nothing.
func weights(wanted []int, ranks int) []int {
	if wanted != nil && len(wanted) != ranks {
		panic("ledger: Assign needs a wanted share for each rank")
	}
	if len(wanted) > 0 && slices.Max(wanted) > 0 {
		return wanted
	}
	same := make([]int, ranks)
	for r := range same {
		same[r] = 1
	}
	return same
}
