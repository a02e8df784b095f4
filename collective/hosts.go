package collective

import "slices"

// hosts is how the ranks of a communicator lie on several hosts, some of which have more
// than one: those of a host share memory.
type hosts struct {
	local   *Comm  // the ranks of this host
	near    []int  // the same ranks as the communicator has them, the leader first
	leaders *Comm  // the first rank of each host; nil at the others
	number  int    // of hosts
	turns   *turns // of calls in local, and to begin calls in leaders
}

// Kinds of communicators inside one, for childID.
const (
	localColor = -2 - iota
	leaderColor
)

// divide notes which rank of the transport leads the ranks with which each rank shares
// memory, itself where it shares none. It is the same at all.
func (w *world) divide(leaders []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaders = leaders
}

// settle finds out on which hosts the ranks of a new communicator are, and gives those of
// this host a lane.
func (c *Comm) settle(lane int) {
	c.lane = c.takeLane(lane)
	if c.lane != nil || c.leaders == nil {
		return
	}
	var near, local, first []int // the last two are ranks of the transport
	for rank := range c.size {
		at := c.inWorld(rank)
		if c.leaders[at] == c.leaders[c.self] {
			near, local = append(near, rank), append(local, at)
		}
		if !slices.ContainsFunc(first, func(r int) bool { return c.leaders[r] == c.leaders[at] }) {
			first = append(first, at)
		}
	}
	if len(first) == c.size {
		return // a rank each
	}
	h := &hosts{local: c.part(local, localColor), near: near, number: len(first), turns: new(turns)}
	h.local.lane = h.local.takeLane(lane)
	if slices.Contains(first, c.self) {
		h.leaders = c.part(first, leaderColor)
	}
	c.hosts = h
}

// part is a communicator of some ranks of the transport, all of which make it.
func (c *Comm) part(ranks []int, color int) *Comm {
	id := childID(c.id, uint32(ranks[0]), color)
	return &Comm{world: c.world, seq: c.sequence(id, nil), id: id, rank: slices.Index(ranks, c.self), size: len(ranks), ranks: ranks}
}
