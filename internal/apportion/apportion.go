// Package apportion hands out whole things in proportion to weights, by the same integers
// everywhere. It is for package loadbal and for what ranks hold of a step.
package apportion

import "slices"

// levelUnit is what the level of Fill is counted in: parts of what is wanted.
const levelUnit = 1 << 20

// Fill returns how many of free more each of those with the given totals and weights gets: as if
// they were dealt one by one to whoever then has the least of its weight, the lowest of those.
// Who has weight 0 gets nothing. Numbers are below 1<<19. It panics without totals, with another
// number of weights, with none above 0 and with a negative number.
func Fill(totals, weights []int, free int) []int {
	if len(totals) == 0 || len(weights) != len(totals) || slices.Max(weights) <= 0 || free < 0 {
		panic("apportion: Fill needs a weight for each total, one of them above 0, and no negative number")
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

// least is the one that would have the least of its weight with one more.
func least(totals, more, weights []int) int {
	best := -1
	for r, w := range weights {
		if w > 0 && (best < 0 || (totals[r]+more[r]+1)*weights[best] < (totals[best]+more[best]+1)*w) {
			best = r
		}
	}
	return best
}
