package loadbal

import "slices"

// Assign shares out the microbatches of a step of which the ranks hold some already:
// held[r] is what rank r has computed, and nil where that is nothing. shares[r] is all
// that rank r is to contribute. Every microbatch is in exactly one share.
//
// Who holds a microbatch keeps it. The others go to those with the least, so that the
// shares come as close to each other as what is held allows, and each rank gets
// neighbouring ones; ties go to low ranks. Where nobody holds anything the shares are
// those of Equal and Range.
//
// A contribution cannot be taken apart. So a rank whose held microbatches overlap with
// those of a lower rank, or are none of the step's, has to throw all of them away:
// kept[r] is false. It panics without ranks or with a negative number of microbatches.
func Assign(held []Set, microbatches int) (shares []Set, kept []bool) {
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
	for r, n := range fill(totals, microbatches-taken.Len()) {
		for ; n > 0; next++ {
			if !taken.Has(next) {
				shares[r].Add(next)
				n--
			}
		}
	}
	return shares, kept
}

// fill returns how many of free more each rank gets on top of its total: as if they
// were dealt one by one to whoever has the least, the lowest of those.
func fill(totals []int, free int) []int {
	if len(totals) == 0 || free < 0 {
		panic("loadbal: Assign needs at least one rank and no negative number of microbatches")
	}
	// The level is the highest to which all can be filled. It is found among the ranks
	// in ascending order: the first n of them are below it.
	sorted := slices.Sorted(slices.Values(totals))
	level, rest := 0, 0
	for n, sum := 1, 0; n <= len(sorted); n++ {
		sum += sorted[n-1]
		level, rest = (sum+free)/n, (sum+free)%n
		if n == len(sorted) || level < sorted[n] {
			break
		}
	}
	more := make([]int, len(totals))
	for r, t := range totals {
		more[r] = max(0, level-t)
		if t <= level && rest > 0 {
			more[r]++
			rest--
		}
	}
	return more
}
