package loadbal

import "slices"

// Assign is AssignTo where all ranks want the same.
func Assign(held []Set, microbatches int) (shares []Set, kept []bool) {
	return AssignTo(held, nil, microbatches)
}

// AssignTo shares out the microbatches of a step of which the ranks hold some already:
// held[r] is what rank r has computed, and nil where that is nothing. shares[r] is all
// that rank r is to contribute. Every microbatch is in exactly one share.
//
// Who holds a microbatch keeps it. The others go to those with the least in proportion
// to what is wanted of them, so that the sizes of the shares come as close to wanted as
// what is held allows, and each rank gets neighbouring ones; ties go to low ranks.
// wanted[r] is how many rank r should have in all. It need not add up to the
// microbatches: they are weights. Where all of it is 0 or wanted is nil, all ranks want
// the same. Where nobody holds anything and wanted adds up, the shares are those of
// wanted and Range.
//
// A contribution cannot be taken apart. So a rank whose held microbatches overlap with
// those of a lower rank, or are none of the step's, has to throw all of them away:
// kept[r] is false. It panics without ranks, with a negative number of microbatches or
// with a wanted of another length than held.
func AssignTo(held []Set, wanted []int, microbatches int) (shares []Set, kept []bool) {
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
	for r, n := range fill(totals, weights(wanted, len(held)), microbatches-taken.Len()) {
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
		panic("loadbal: Assign needs a wanted share for each rank")
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

// levelUnit is what the level of fill is counted in: parts of what is wanted.
const levelUnit = 1 << 20

// fill returns how many of free more each rank gets on top of its total: as if they
// were dealt one by one to whoever then has the least of its weight, the lowest of
// those. Ranks of weight 0 get nothing.
func fill(totals, weights []int, free int) []int {
	if len(totals) == 0 || free < 0 {
		panic("loadbal: Assign needs at least one rank and no negative number of microbatches")
	}
	// All are filled to one level first, the highest for which there is enough.
	// At the upper end one rank alone would get more than there is.
	to := func(level, r int) int { return max(0, level*weights[r]/levelUnit-totals[r]) }
	low, high := 0, (slices.Max(totals)+free+1)*levelUnit/slices.Max(weights)+1
	for high-low > 1 {
		level, sum := (low+high)/2, 0
		for r := range totals {
			sum += to(level, r)
		}
		if sum <= free {
			low = level
		} else {
			high = level
		}
	}
	more := make([]int, len(totals))
	for r := range more {
		more[r] = to(low, r)
		free -= more[r]
	}
	for ; free > 0; free-- {
		more[least(totals, more, weights)]++
	}
	return more
}

// least is the rank that would have the least of its weight with one more.
func least(totals, more, weights []int) int {
	best := -1
	for r, w := range weights {
		if w > 0 && (best < 0 || (totals[r]+more[r]+1)*weights[best] < (totals[best]+more[best]+1)*w) {
			best = r
		}
	}
	return best
}
