package collective

import "slices"

// level is how the ranks of a communicator fall into groups that are reached better from
// inside than from outside: those of a host, which share memory, or those of a site.
type level struct {
	local   *Comm  // the ranks of this group
	near    []int  // the same ranks as the communicator has them, the leader first
	leaders *Comm  // the first rank of each group, which may have a level of its own; nil at the others
	number  int    // of groups
	turns   *turns // of calls in local, and to begin calls in leaders
}

// Kinds of communicators inside one, for childID.
const (
	localColor = -2 - iota
	leaderColor
	siteColor
	headColor
)

// divide notes which rank of the transport leads the ranks with which each rank shares
// memory, itself where it shares none. It is the same at all.
func (w *world) divide(leaders []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaders = leaders
}

// settle finds out on which hosts and at which sites the ranks of a new communicator are, and
// gives those of this host a lane.
func (c *Comm) settle(lane int) {
	c.lane = c.takeLane(lane)
	if c.lane != nil || c.leaders == nil {
		return
	}
	hosts := groupBy(c.worldRanks(), func(at int) int { return c.leaders[at] })
	if len(hosts) == c.size { // a rank each
		c.level = c.bySite()
		return
	}
	c.level = c.divided(hosts, localColor, leaderColor)
	c.level.local.lane = c.level.local.takeLane(lane)
	if c.level.leaders != nil {
		c.level.leaders.level = c.level.leaders.bySite()
	}
}

// bySite returns how the ranks of c fall into sites. There is nothing to gain from them, and it
// is nil, where they are not known, or there is one, or each has one rank. A host that has ranks
// of two sites belongs to that of its first rank.
func (c *Comm) bySite() *level {
	if c.opts.Sites == nil {
		return nil
	}
	sites := groupBy(c.worldRanks(), func(at int) int { return c.opts.Sites[c.leaders[at]] })
	if len(sites) == 1 || len(sites) == c.size {
		return nil
	}
	return c.divided(sites, siteColor, headColor)
}

// groupBy puts ranks that have a key in common together, groups in the order of their first ranks.
func groupBy(ranks []int, key func(rank int) int) [][]int {
	var groups [][]int
	at := make(map[int]int) // by key
	for _, rank := range ranks {
		i, seen := at[key(rank)]
		if !seen {
			i = len(groups)
			at[key(rank)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], rank)
	}
	return groups
}

// divided returns a level whose groups hold the ranks of c, numbered as in the transport.
func (c *Comm) divided(groups [][]int, local, leader int) *level {
	l := &level{number: len(groups), turns: new(turns)}
	first := make([]int, 0, len(groups))
	for _, g := range groups {
		first = append(first, g[0])
		if !slices.Contains(g, c.self) {
			continue
		}
		l.local = c.part(g, local)
		for _, at := range g {
			l.near = append(l.near, c.rankOf(at))
		}
	}
	if slices.Contains(first, c.self) {
		l.leaders = c.part(first, leader)
	}
	return l
}

// worldRanks lists the ranks of c as the transport has them.
func (c *Comm) worldRanks() []int {
	all := make([]int, c.size)
	for rank := range all {
		all[rank] = c.inWorld(rank)
	}
	return all
}

// rankOf is the inverse of inWorld.
func (c *Comm) rankOf(at int) int {
	if c.ranks == nil {
		return at
	}
	return slices.Index(c.ranks, at)
}

// part is a communicator of some ranks of the transport, all of which make it.
func (c *Comm) part(ranks []int, color int) *Comm {
	id := childID(c.id, uint32(ranks[0]), color)
	return &Comm{world: c.world, seq: c.sequence(id, nil), id: id, rank: slices.Index(ranks, c.self), size: len(ranks), ranks: ranks}
}
