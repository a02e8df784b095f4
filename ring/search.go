package ring

import "slices"

// searchOrder orders many nodes: a greedy chain, of which the slowest link is replaced
// as long as that can be done.
func searchOrder(cost [][]int64) []int {
	order := chain(cost)
	// Each exchange lowers the number of links that are as slow as the slowest, or the
	// slowest itself, so this ends. The bound keeps the time of one call in bounds.
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

// chain goes from node 0 on to the nearest node that is left.
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

// slowestLink returns the place of the node from which the slowest link goes.
func slowestLink(cost [][]int64, order []int) int {
	worst, at := int64(-1), 0
	for i := range order {
		if c := link(cost, order, i, i+1); c > worst {
			worst, at = c, i
		}
	}
	return at
}

// link returns the cost of a link between two places of a ring.
func link(cost [][]int64, order []int, from, to int) int64 {
	n := len(order)
	return cost[order[from%n]][order[to%n]]
}

// exchange looks for two links by whose removal, together with that at place at, the ring
// falls into three parts that can be joined in the other order with faster links alone.
// These are the links of the places at+i and at+j, 0 < i < j. No part is turned
// round: the costs of the two directions of a link may differ. Of several it takes the
// one with the least sum for the first i that has any.
func exchange(cost [][]int64, order []int, at int) (i, j int, found bool) {
	n := len(order)
	limit := link(cost, order, at, at+1)
	for i := 1; i < n-1; i++ {
		// The part from at+i+1 on comes right after the place at.
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

// swapped exchanges the parts (at, at+i] and (at+i, at+j].
func swapped(order []int, at, i, j int) []int {
	n := len(order)
	turned := slices.Concat(order[(at+1)%n:], order[:(at+1)%n]) // place at+1 first
	return slices.Concat(turned[i:j], turned[:i], turned[j:])
}

// from0 turns a ring so that node 0 is first.
func from0(order []int) []int {
	at := slices.Index(order, 0)
	return slices.Concat(order[at:], order[:at])
}
