package member

import "slices"

// searchSteps bounds the search for the largest set: the problem is NP-hard in general (maximum
// independent set, Karp, 1972). A group that is partitioned into a few parts needs few steps. An
// irregular pattern may need too many; then the best set found so far is used, which is valid, too.
const searchSteps = 4096

// partitionGraph is the graph of pairs of members that cannot reach each other. A set of members
// that can all reach each other is an independent set of the graph.
type partitionGraph struct {
	adjacent [][]int // neighbours by rank, ascending
	gone     []bool  // ranks that are excluded from the set so far
	removed  int     // number of ranks that are true in gone
	cut      []int   // ranks with at least one neighbour, ascending

	best      []bool // ranks that the best set so far excludes
	bestCount int    // number of ranks that best excludes
	// steps counts the steps of the search, which are bounded.
	steps int
}

// newPartitionGraph returns the graph of len(out) members with the edges pairs. Members marked in
// out are in no set.
func newPartitionGraph(pairs [][2]int, out []bool) *partitionGraph {
	g := &partitionGraph{adjacent: make([][]int, len(out)), gone: slices.Clone(out), bestCount: len(out) + 1}
	for _, p := range pairs {
		a, b := p[0], p[1]
		// Both members of a pair may report that they cannot reach each other: the edge counts
		// once.
		if a == b || out[a] || out[b] || slices.Contains(g.adjacent[a], b) {
			continue
		}
		g.adjacent[a] = append(g.adjacent[a], b)
		g.adjacent[b] = append(g.adjacent[b], a)
	}
	for i := range g.adjacent {
		if len(g.adjacent[i]) > 0 {
			slices.Sort(g.adjacent[i])
			g.cut = append(g.cut, i)
		}
	}
	return g
}

// largest returns the members of a largest independent set (I13). Of several such sets it returns
// the first in the lexicographic order of their ranks. If the search ends at searchSteps it returns
// the best set found.
func (p *partitionGraph) largest() []bool {
	p.search(0)
	keep := make([]bool, len(p.best))
	for i, gone := range p.best {
		keep[i] = !gone
	}
	return keep
}

// search decides the ranks p.cut[at:] by branch and bound. It tries to keep a rank before it tries
// to drop the rank, so of equally large sets it finds the set with the lowest ranks first. That set
// stays the best.
func (p *partitionGraph) search(at int) {
	// A rank whose neighbours are all excluded is kept without a choice.
	for at < len(p.cut) && (p.gone[p.cut[at]] || !p.contested(p.cut[at])) {
		at++
	}
	// The problem (maximum independent set) is NP-hard: the number of steps is bounded, once there
	// is a result.
	if p.removed >= p.bestCount || p.best != nil && p.steps >= searchSteps {
		return
	}
	p.steps++
	if at == len(p.cut) {
		p.best, p.bestCount = slices.Clone(p.gone), p.removed
		return
	}
	rank := p.cut[at]
	// To keep the rank means to drop all ranks that it cannot reach.
	p.dropAll(p.adjacent[rank], at)
	p.dropAll([]int{rank}, at)
}

// dropAll continues the search with these ranks excluded.
func (p *partitionGraph) dropAll(ranks []int, at int) {
	var dropped []int
	for _, r := range ranks {
		if !p.gone[r] {
			p.gone[r] = true
			dropped = append(dropped, r)
		}
	}
	p.removed += len(dropped)
	p.search(at + 1)
	p.removed -= len(dropped)
	for _, r := range dropped {
		p.gone[r] = false
	}
}

// contested reports whether a rank has an edge to a rank that may still be in the set.
func (p *partitionGraph) contested(rank int) bool {
	return slices.ContainsFunc(p.adjacent[rank], func(o int) bool { return !p.gone[o] })
}
