package ledger

import (
	"slices"

	"github.com/elrun/elrun/internal/apportion"
)

// Assign divides the microbatches of a step among the ranks. Some ranks may hold microbatches
// already: held[r] is the set that rank r has computed, or nil if it is empty. shares[r] is
// everything that rank r contributes. Every microbatch is in exactly one share.
//
// Held microbatches stay with their holder. The others go to the ranks with the fewest in
// proportion to their wanted number, so that the sizes of the shares come as close to wanted as
// the held sets allow. Each rank gets neighbouring microbatches; ties go to low ranks.
//
// wanted[r] is the total number that rank r should have. The numbers are weights: they need not add
// up to microbatches. If wanted is nil or all zero, all ranks have equal weights. If no rank holds
// a microbatch and wanted adds up to microbatches, the shares have exactly the wanted sizes, one
// rank after the other.
//
// A contribution is a sum, from which no microbatch can be removed. So a rank whose held set
// overlaps a lower rank's set, or contains microbatches outside the step, has to drop its whole
// contribution: kept[r] is false. Assign panics if there are no ranks, if microbatches is negative,
// or if wanted and held differ in length.
func Assign(held []Set, wanted []int, microbatches int) (shares []Set, kept []bool) {
	if len(held) == 0 || microbatches < 0 {
		panic("ledger: Assign needs at least one rank and no negative number of microbatches")
	}
	shares, kept = make([]Set, len(held)), make([]bool, len(held))
	taken := NewSet(microbatches)
	totals := make([]int, len(held))
	// First pass: ranks keep the microbatches that they hold, unless a lower rank holds them, too.
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
	// Second pass: fill the shares up with the free microbatches, in ascending order.
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

// weights returns wanted, or equal weights if wanted is nil or all zero.
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
