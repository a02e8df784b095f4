package ring

import (
	"math"
	"slices"
)

// exactMost is the number of nodes up to which Order tries all orders, in effect.
const exactMost = 10

// Order returns the ranks in the order of a ring, 0 first, whose slowest link is as fast
// as can be, and of those orders the one with the least sum of costs, and then the first.
// cost[i][j] >= 0 is the time that the link from rank i to rank j takes for some amount of
// data, in any unit; 0 stands for one that is not known and counts as the median of the
// others. host[i] names the host of rank i: ranks of one host stand next to each other,
// the last one of the ring being next to the first.
//
// The result is exact for up to ten ranks. Above that it is exact for up to ten
// hosts whose ranks stand in their own order; with more hosts it is what a local search
// finds. It is a pure function, the same at every rank.
func Order(cost [][]int64, host []int) []int {
	n := len(cost)
	known := fill(cost)
	if n <= exactMost {
		return exactOrder(known, host)
	}
	blocks := blocksOf(host)
	between := make([][]int64, len(blocks))
	for i, a := range blocks {
		between[i] = make([]int64, len(blocks))
		for j, b := range blocks {
			between[i][j] = known[a[len(a)-1]][b[0]]
		}
	}
	var order []int
	for _, b := range orderBlocks(between) {
		order = append(order, blocks[b]...)
	}
	return order
}

// Bottleneck returns the cost of the slowest link of a ring in that order, and the sum
// of all; a link that is not known counts as for Order.
func Bottleneck(cost [][]int64, order []int) (slowest, sum int64) {
	return measure(fill(cost), order)
}

// Bound returns a cost that the slowest link of no ring is below: of those by which some
// host is entered, or left, the best has it. It takes far less time than Order.
func Bound(cost [][]int64, host []int) int64 {
	in, out := make(map[int]int64), make(map[int]int64)
	for i, row := range fill(cost) {
		for j, c := range row {
			if host[i] != host[j] {
				out[host[i]] = least(out, host[i], c)
				in[host[j]] = least(in, host[j], c)
			}
		}
	}
	bound := int64(0)
	for h := range in { // the order of hosts does not matter
		bound = max(bound, in[h], out[h])
	}
	return bound
}

// least returns the lesser of c and what m has for h, if anything.
func least(m map[int]int64, h int, c int64) int64 {
	if old, ok := m[h]; ok {
		return min(old, c)
	}
	return c
}

// measure is Bottleneck of a matrix without holes.
func measure(cost [][]int64, order []int) (slowest, sum int64) {
	for i, from := range order {
		c := cost[from][order[(i+1)%len(order)]]
		slowest, sum = max(slowest, c), sum+c
	}
	return slowest, sum
}

// fill returns a copy of cost with the median in place of what is not known.
func fill(cost [][]int64) [][]int64 {
	var all []int64
	for i, row := range cost {
		for j, c := range row {
			if i != j && c > 0 {
				all = append(all, c)
			}
		}
	}
	median := int64(1)
	if len(all) > 0 {
		slices.Sort(all)
		median = all[len(all)/2]
	}
	out := make([][]int64, len(cost))
	for i, row := range cost {
		out[i] = slices.Clone(row)
		for j, c := range row {
			if c <= 0 {
				out[i][j] = median
			}
		}
	}
	return out
}

// blocksOf lists the ranks of each host, the hosts in the order of their first ranks.
func blocksOf(host []int) [][]int {
	var blocks [][]int
	at := make(map[int]int)
	for rank, h := range host {
		i, seen := at[h]
		if !seen {
			i = len(blocks)
			at[h] = i
			blocks = append(blocks, nil)
		}
		blocks[i] = append(blocks[i], rank)
	}
	return blocks
}

// orderBlocks orders nodes that are alone on their hosts.
func orderBlocks(cost [][]int64) []int {
	if len(cost) <= exactMost {
		return exactOrder(cost, blockNumbers(len(cost)))
	}
	return searchOrder(cost)
}

// blockNumbers returns 0 to n-1.
func blockNumbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// unreachable is more than any cost.
const unreachable = math.MaxInt64

// tours is a dynamic program over sets of nodes (Held and Karp 1962). best[set][last] is
// the least price of a way that has visited set, node 0 and last among it, through all
// other nodes and back to node 0.
type tours struct {
	cost  [][]int64
	host  []int
	hosts map[int]uint // the nodes of each host, as a set
	limit int64        // links above it are not used
	price func(link, rest int64) int64
	best  [][]int64
}

// exactOrder finds the least bottleneck first, and then the least sum with links that
// are not above it: the two at once have no optimal parts.
func exactOrder(cost [][]int64, host []int) []int {
	if len(cost) == 0 {
		return nil
	}
	t := &tours{cost: cost, host: host, hosts: make(map[int]uint), limit: unreachable - 1}
	for node, h := range host {
		t.hosts[h] |= 1 << node
	}
	t.price = func(link, rest int64) int64 { return max(link, rest) }
	t.solve()
	t.limit = t.best[1][0]
	t.price = func(link, rest int64) int64 { return link + rest }
	t.solve()
	return t.walk()
}

// solve fills best, larger sets first.
func (t *tours) solve() {
	n := len(t.cost)
	all := uint(1)<<n - 1
	t.best = make([][]int64, all+1)
	for set := all; set > 0; set-- {
		t.best[set] = make([]int64, n)
		for last := range n {
			t.best[set][last] = unreachable
			if set&1 != 0 && set>>last&1 != 0 {
				t.best[set][last] = t.from(set, last)
			}
		}
	}
}

// from returns the least price from last on.
func (t *tours) from(set uint, last int) int64 {
	n := len(t.cost)
	if set == uint(1)<<n-1 {
		if n == 1 {
			return 0
		}
		return t.over(last, 0, 0)
	}
	least := int64(unreachable)
	for next := range n {
		if t.allowed(set, last, next) {
			least = min(least, t.over(last, next, t.best[set|1<<next][next]))
		}
	}
	return least
}

// over returns the price of a link and what comes after it.
func (t *tours) over(from, to int, rest int64) int64 {
	if rest == unreachable || t.cost[from][to] > t.limit {
		return unreachable
	}
	return t.price(t.cost[from][to], rest)
}

// allowed reports whether next may follow last: a host is left when all of it was visited.
// Only that of node 0 may be left before, and what remains of it comes last.
func (t *tours) allowed(set uint, last, next int) bool {
	from, to, home := t.host[last], t.host[next], t.host[0]
	switch {
	case set>>next&1 != 0:
		return false
	case to == home:
		return from == home || t.complete(set)
	}
	return from == to || from == home || t.hosts[from]&^set == 0
}

// complete reports whether all nodes but those of node 0's host were visited.
func (t *tours) complete(set uint) bool {
	all := uint(1)<<len(t.cost) - 1
	return all&^set&^t.hosts[t.host[0]] == 0
}

// walk follows the best way, to the first node of several that are as good.
func (t *tours) walk() []int {
	order, set := []int{0}, uint(1)
	for last := 0; len(order) < len(t.cost); {
		for next := range t.cost {
			if t.allowed(set, last, next) && t.over(last, next, t.best[set|1<<next][next]) == t.best[set][last] {
				order, set, last = append(order, next), set|1<<next, next
				break
			}
		}
	}
	return order
}
