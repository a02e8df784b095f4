package ring

import (
	"math"
	"slices"
)

// exactMost is the greatest number of nodes for which Order finds the optimum, by a dynamic program
// over all orders.
const exactMost = 10

// Order returns the order of the ranks in the ring, 0 first, that makes the slowest link as fast as
// possible (a bottleneck travelling salesman problem). Among such orders it returns one with the
// least sum of costs, and among these the first in lexicographic order.
//
// cost[i][j] >= 0 is the time that the link from rank i to rank j takes for a fixed amount of data,
// in any unit. A cost of 0 stands for an unknown link, which is used only if Order finds no ring of
// known links. A negative cost stands for an impossible link, which is used only if Order finds no
// ring without it.
//
// host[i] is the host of rank i. site[i] is its site, the same for all ranks of a host; site may be
// nil. The ranks of a host are next to each other in the ring, and so are the ranks of a site; the
// last rank is next to the first.
//
// The result is the optimum for up to ten ranks. For more ranks, the ranks of a host stay in
// ascending order, and only the hosts are ordered: the result is the optimum for up to ten hosts.
// For more hosts a local search orders the hosts within each site and then the sites. Order is a
// pure function, so all ranks compute the same ring.
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
	at := make([]int, len(blocks)) // the site of each block
	for i, b := range blocks {
		at[i] = site[b[0]]
	}
	return joinBlocks(blocks, orderBlocks(betweenBlocks(known, blocks), at))
}

// betweenBlocks returns the cost of the links from the last node of each block to the first node of
// each other block.
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

// joinBlocks returns the nodes of the blocks, in the given order of the blocks.
func joinBlocks(blocks [][]int, order []int) []int {
	var all []int
	for _, b := range order {
		all = append(all, blocks[b]...)
	}
	return all
}

// Bottleneck returns the cost of the slowest link of a ring in the given order, and the sum of all
// costs. An unknown or impossible link counts more than all known links together.
func Bottleneck(cost [][]int64, order []int) (slowest, sum int64) {
	return measure(fill(cost), order)
}

// Bound returns a lower bound of the slowest link over all rings: every ring enters and leaves each
// host, at best by the fastest link that leads into the host or out of it. Bound takes far less
// time than Order.
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
	for h := range in { // a maximum: the iteration order does not matter
		bound = max(bound, in[h], out[h])
	}
	return bound
}

// least returns the lesser of c and m[h], or c if m has no h.
func least(m map[int]int64, h int, c int64) int64 {
	if old, ok := m[h]; ok {
		return min(old, c)
	}
	return c
}

// measure is Bottleneck of a matrix that fill has completed.
func measure(cost [][]int64, order []int) (slowest, sum int64) {
	for i, from := range order {
		c := cost[from][order[(i+1)%len(order)]]
		slowest, sum = max(slowest, c), add(sum, c)
	}
	return slowest, sum
}

// fill returns a copy of cost with numbers for the special links: an unknown link costs more than a
// ring of known links, and an impossible link more than a ring of unknown links. So a search that
// only compares numbers avoids special links wherever a ring without them exists.
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

// ringOf returns a cost above the cost of n links, limited so that sums do not overflow.
func ringOf(n, cost int64) int64 {
	if cost > (unreachable/4)/n {
		return unreachable / 4
	}
	return n*cost + 1
}

// add adds costs and saturates below unreachable.
func add(a, b int64) int64 {
	if a > unreachable-1-b {
		return unreachable - 1
	}
	return a + b
}

// blocksOf returns the ranks of each host, or of each site, in the order of their first ranks.
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

// orderBlocks orders nodes that each have a host of their own; nodes of a site stay next to each
// other.
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

// blockNumbers returns the numbers from 0 to n-1.
func blockNumbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// unreachable is above every cost; it marks sets without a path.
const unreachable = math.MaxInt64

// tours is a dynamic program over sets of nodes: M. Held and R. M. Karp, "A dynamic programming
// approach to sequencing problems", Journal of SIAM 10 (1962). The bits of set are the visited
// nodes, including node 0 and last. best[set][last] is the least price of a path that completes the
// ring: from the node last through all nodes that are not in set, back to node 0.
type tours struct {
	cost   [][]int64
	groups []group
	limit  int64                        // links with a higher cost are not used
	price  func(link, rest int64) int64 // price of a path, from the cost of its first link and the price of the other links
	best   [][]int64
}

// group is a partition of the nodes into hosts or sites. The nodes of each host or site must be
// next to each other in the ring.
type group struct {
	of    []int        // host or site by node
	nodes map[int]uint // the nodes of each host or site, as bit set
}

// newGroup returns the partition that puts node i into host or site of[i].
func newGroup(of []int) group {
	g := group{of, make(map[int]uint)}
	for node, h := range of {
		g.nodes[h] |= 1 << node
	}
	return g
}

// exactOrder first finds the least bottleneck, and then the least sum of costs among the rings that
// use only links up to this bottleneck. A search for both at once would not have the optimal
// substructure that a dynamic program needs.
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

// solve fills best, from larger sets to smaller sets, because the price of a set follows from the
// prices of the sets with one node more. For n nodes it takes 2^n * n^2 steps and 2^n * n * 8
// bytes: with exactMost nodes 102,400 steps and 80 KiB.
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

// from returns the least price of a path that continues from the node last, after the nodes in set
// were visited.
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

// over returns the price of a path that begins with the given link; rest is the price of the path
// after the link.
func (t *tours) over(from, to int, rest int64) int64 {
	if rest == unreachable || t.cost[from][to] > t.limit {
		return unreachable
	}
	return t.price(t.cost[from][to], rest)
}

// allowed reports whether the node next may follow the node last, after the nodes in set were
// visited.
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

// allows reports whether a partition lets the node next follow the node last. A path leaves a host
// only after it has visited all nodes of the host. The host of node 0 is the exception: a path may
// leave this host early, and then visits the remaining nodes of this host at the end.
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

// walk returns the best path. At each step it takes the first of the equally good nodes.
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
