package collective

import (
	"cmp"
	"context"
	"slices"

	"github.com/elrun/elrun/collective/transport"
)

// Split makes a communicator for each color: of the ranks that give it, in the order
// of their keys and, where these are equal, of their ranks here. A rank that gives a
// negative color gets nil. The new communicators share the transport of c: one
// revocation ends them all, and only the first one's Close ends the transport. Close them
// when they are of no more use.
func Split(ctx context.Context, c *Comm, color, key int) (*Comm, error) {
	c = c.orNobody()
	table := make([]int64, columns*c.size)
	copy(table[columns*c.rank:], []int64{int64(color), int64(key), c.freeLane()})
	var id uint64
	p := c.using(Auto).planFor(vector{kind: transport.KindSplit, root: none})
	p.body = func(o *operation) error {
		id = childID(o.env.Comm, o.env.Seq, color)
		return allGatherInPlace(o, table, bounds(evenly(o.size, columns)))
	}
	if err := c.run(ctx, p); err != nil {
		return nil, err
	}
	if color < 0 {
		return nil, nil
	}
	return c.child(id, table, color), nil
}

// Dup makes a communicator of the same ranks with a sequence of calls of its own.
func Dup(ctx context.Context, c *Comm) (*Comm, error) { return Split(ctx, c, 0, c.Rank()) }

// columns of the table that Split gathers: color, key, the first lane that is free at the
// rank. The highest of these is free at all.
const columns = 3

// child picks the members of color out of the table.
func (c *Comm) child(id uint64, table []int64, color int) *Comm {
	var ranks []int
	lane := 0
	for rank := range c.size {
		if table[columns*rank] == int64(color) {
			ranks = append(ranks, rank)
			lane = max(lane, int(table[columns*rank+2]))
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int {
		return cmp.Compare(table[columns*a+1], table[columns*b+1])
	})
	d := &Comm{world: c.world, seq: c.sequence(id, c.seq), id: id, rank: slices.Index(ranks, c.rank),
		size: len(ranks), algorithm: c.algorithm}
	for _, rank := range ranks {
		d.ranks = append(d.ranks, c.inWorld(rank))
	}
	d.settle(lane)
	return d
}

// childID derives the identity of a new communicator from what all its members know:
// the parent, the call and the color. It is never 0; that two of a session are equal
// is as unlikely as for random numbers of 64 bits (mixing steps of SplitMix64).
func childID(parent uint64, seq uint32, color int) uint64 {
	h := uint64(0)
	for _, v := range []uint64{parent, uint64(seq), uint64(color)} {
		h += 0x9e3779b97f4a7c15 + v
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return max(h, 1)
}
