// Package apportion divides whole units, such as microbatches, in proportion to weights, in integer
// arithmetic, so that all ranks get the same result. Package loadbal uses it for the shares of
// ranks, and the trainer for the microbatches of a step.
package apportion

import "slices"

// levelUnit is the fixed-point unit of the level in Fill: 20 fractional bits.
const levelUnit = 1 << 20

// Fill divides free additional units among receivers so that the final totals are, as nearly as
// whole units allow, in proportion to the weights. It returns the number of additional units for
// each receiver. totals has the units that the receivers have already. The result is the same as if
// each unit in turn were given to the receiver for which (total+1)/weight is least, and of equal
// receivers to the one with the lowest index. This is the method of highest averages (D'Hondt,
// Jefferson). A receiver with weight 0 gets nothing.
//
// Totals, weights and free must be below 1<<19, so that no product in the computation exceeds 63
// bits. Fill panics if there are no totals, if the number of weights differs, if no weight is above
// 0, or if free is negative.
func Fill(totals, weights []int, free int) []int {
	if len(totals) == 0 || len(weights) != len(totals) || slices.Max(weights) <= 0 || free < 0 {
		panic("apportion: Fill needs a weight for each total, one of them above 0, and no negative number")
	}
	// First fill all receivers to the same level of total/weight. Bisection finds the highest level
	// for which free is enough. At the upper bound a single receiver would get more than free.
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
	// Rounding down left fewer units than there are receivers. They go to the receivers one by one.
	for ; free > 0; free-- {
		more[least(totals, more, weights)]++
	}
	return more
}

// least returns the index of the receiver that gets the next unit. It compares quotients by
// cross-multiplication: division would round, and all ranks must agree.
func least(totals, more, weights []int) int {
	best := -1
	for r, w := range weights {
		if w > 0 && (best < 0 || (totals[r]+more[r]+1)*weights[best] < (totals[best]+more[best]+1)*w) {
			best = r
		}
	}
	return best
}
