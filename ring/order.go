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
// data, in any unit. A link that is not known, 0, is used only where no order of known ones
// was found, and one that cannot be made, below 0, only where no other was. host[i] names the
// host of rank i, and site[i] its site, the same for all of a host; site is nil where there is
// nothing to say. Ranks of one host, and those of one site, stand next to each other, the last one
// of the ring being next to the first.
//
// The result is exact for up to ten ranks. Above that it is exact for up to ten
// hosts whose ranks stand in their own order; with more hosts it is what a local search
// finds, first at each site and then between them. It is a pure function, the same at every rank.
func Order(cost [][]int64, host, site []int) []int {
	n := len(cost)
	known := fill(cost)
	if site == nil {
		site = make([]int, n)
	}
	if n <= exactMost {
		return exactOrder(known, host, site)
	}
	blocks := blocksOf(host)
	at := make([]int, len(blocks)) // sites
	for i, b := range blocks {
		at[i] = site[b[0]]
	}
	return joinBlocks(blocks, orderBlocks(betweenBlocks(known, blocks), at))
}

// betweenBlocks returns what the links from the last node of a block to the first of another cost.
func betweenBlocks(cost [][]int64, blocks [][]int) [][]int64 {
	between := make([][]int64, len(blocks))
	for i, a := range blocks {
		between[i] = make([]int64, len(blocks))
		for j, b := range blocks {
			between[i][j] = cost[a[len(a)-1]][b[0]]
		}
	}
	return between
}

// joinBlocks lists the nodes of blocks in that order.
func joinBlocks(blocks [][]int, order []int) []int {
	var all []int
	for _, b := range order {
		all = append(all, blocks[b]...)
	}
	return all
}

// Bottleneck returns the cost of the slowest link of a ring in that order, and the sum
// of all. A link that is not known, or cannot be made, costs more than all that are.
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
		slowest, sum = max(slowest, c), add(sum, c)
	}
	return slowest, sum
}

// fill returns a copy of cost in which a link that is not known costs more than a ring of known
// ones, and one that cannot be made more than a ring of those.
func fill(cost [][]int64) [][]int64 {
	most := int64(0)
	for i, row := range cost {
		for j, c := range row {
			if i != j {
				most = max(most, c)
			}
		}
	}
	n := int64(max(len(cost), 1))
	unknown := ringOf(n, most)
	missing := ringOf(n, unknown)
	out := make([][]int64, len(cost))
	for i, row := range cost {
		out[i] = slices.Clone(row)
		for j, c := range row {
			switch {
			case c < 0:
				out[i][j] = missing
			case c == 0:
				out[i][j] = unknown
			}
		}
	}
	return out
}

// ringOf returns a cost above that of n links.
func ringOf(n, cost int64) int64 {
	if cost > (unreachable/4)/n {
		return unreachable / 4
	}
	return n*cost + 1
}

// add adds costs of links, of which there may be more than a number holds.
func add(a, b int64) int64 {
	if a > unreachable-1-b {
		return unreachable - 1
	}
	return a + b
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

// orderBlocks orders nodes that are alone on their hosts, those of a site next to each other.
func orderBlocks(cost [][]int64, site []int) []int {
	if len(cost) <= exactMost {
		return exactOrder(cost, blockNumbers(len(cost)), site)
	}
	sites := blocksOf(site)
	if len(sites) == 1 {
		return searchOrder(cost)
	}
	for i, nodes := range sites {
		inside := make([][]int64, len(nodes))
		for k, from := range nodes {
			for _, to := range nodes {
				inside[k] = append(inside[k], cost[from][to])
			}
		}
		sites[i] = nil
		for _, k := range orderBlocks(inside, make([]int, len(nodes))) {
			sites[i] = append(sites[i], nodes[k])
		}
	}
	return joinBlocks(sites, orderBlocks(betweenBlocks(cost, sites), make([]int, len(sites))))
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
	cost   [][]int64
	groups []group
	limit  int64 // links above it are not used
	price  func(link, rest int64) int64
	best   [][]int64
}

// group tells which nodes stand next to each other: those of one host, or of one site.
type group struct {
	of    []int
	nodes map[int]uint // as a set
}

func newGroup(of []int) group {
	g := group{of, make(map[int]uint)}
	for node, h := range of {
		g.nodes[h] |= 1 << node
	}
	return g
}

// exactOrder finds the least bottleneck first, and then the least sum with links that
// are not above it: the two at once have no optimal parts.
func exactOrder(cost [][]int64, host, site []int) []int {
	if len(cost) == 0 {
		return nil
	}
	t := &tours{cost: cost, groups: []group{newGroup(host), newGroup(site)}, limit: unreachable - 1}
	t.price = func(link, rest int64) int64 { return max(link, rest) }
	t.solve()
	t.limit = t.best[1][0]
	t.price = add
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

// allowed reports whether next may follow last.
func (t *tours) allowed(set uint, last, next int) bool {
	if set>>next&1 != 0 {
		return false
	}
	for _, g := range t.groups {
		if !g.allows(set, last, next) {
			return false
		}
	}
	return true
}

// allows reports whether a group lets next follow last: one is left when all of it was visited.
// Only that of node 0 may be left before, and what remains of it comes last.
func (g group) allows(set uint, last, next int) bool {
	from, to, home := g.of[last], g.of[next], g.of[0]
	switch {
	case from == to:
		return true
	case to == home:
		all := uint(1)<<len(g.of) - 1
		return all&^set&^g.nodes[home] == 0
	}
	return from == home || g.nodes[from]&^set == 0
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
