package ring

import "slices"

// searchOrder returns a good order of many nodes by local search: it starts with a greedy chain,
// and replaces the slowest link as long as a replacement improves the ring (3-opt moves).
func searchOrder(cost [][]int64) []int {
	order := chain(cost)
	// Each exchange lowers the cost of the slowest link or the number of links with that cost, so
	// the loop ends. The bound limits the time of a call.
	for range 4 * len(order) {
		at := slowestLink(cost, order)
		i, j, found := exchange(cost, order, at)
		if !found {
			break
		}
		order = swapped(order, at, i, j)
	}
	return from0(order)
}

// chain returns a greedy order: it begins at node 0 and always continues at the nearest unvisited
// node.
func chain(cost [][]int64) []int {
	order := []int{0}
	left := blockNumbers(len(cost))[1:]
	for len(left) > 0 {
		row := cost[order[len(order)-1]]
		best := 0
		for i, node := range left {
			if row[node] < row[left[best]] {
				best = i
			}
		}
		order = append(order, left[best])
		left = slices.Delete(left, best, best+1)
	}
	return order
}

// slowestLink returns the place of the node at which the slowest link begins.
func slowestLink(cost [][]int64, order []int) int {
	worst, at := int64(-1), 0
	for i := range order {
		if c := link(cost, order, i, i+1); c > worst {
			worst, at = c, i
		}
	}
	return at
}

// link returns the cost of the link between two places of a ring.
func link(cost [][]int64, order []int, from, to int) int64 {
	n := len(order)
	return cost[order[from%n]][order[to%n]]
}

// exchange looks for a 3-opt move without reversal: it exchanges the link at the place at and two
// more links, at the places at+i and at+j with 0 < i < j. Without these three links the ring
// consists of three parts, which are joined in the other order. All three new links must be faster
// than the link at the place at. No part is reversed, as the two directions of a link may have
// different costs. For the first i that has a move it returns the j whose move has the least sum of
// costs.
func exchange(cost [][]int64, order []int, at int) (i, j int, found bool) {
	n := len(order)
	limit := link(cost, order, at, at+1)
	for i := 1; i < n-1; i++ {
		// The part that begins at the place at+i+1 now follows directly after the place at.
		first := link(cost, order, at, at+i+1)
		if first >= limit {
			continue
		}
		best := int64(unreachable)
		for k := i + 1; k < n; k++ {
			second, third := link(cost, order, at+k, at+1), link(cost, order, at+i, at+k+1)
			if second >= limit || third >= limit {
				continue
			}
			gain := second + third - link(cost, order, at+k, at+k+1)
			if gain < best {
				best, j = gain, k
			}
		}
		if best != unreachable {
			return i, j, true
		}
	}
	return 0, 0, false
}

// swapped returns the order in which the parts (at, at+i] and (at+i, at+j] are exchanged.
func swapped(order []int, at, i, j int) []int {
	n := len(order)
	turned := slices.Concat(order[(at+1)%n:], order[:(at+1)%n]) // rotated: place at+1 first
	return slices.Concat(turned[i:j], turned[:i], turned[j:])
}

// from0 returns the ring rotated so that node 0 is first.
func from0(order []int) []int {
	at := slices.Index(order, 0)
	return slices.Concat(order[at:], order[:at])
}
