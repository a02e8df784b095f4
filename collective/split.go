package collective

import (
	"cmp"
	"context"
	"slices"

	"github.com/elrun/elrun/collective/transport"
)

// Split partitions the ranks of c by color and returns the new communicator of the caller's
// color. Its ranks are in the order of their keys and, for equal keys, of their ranks in c.
// A rank with a negative color gets nil. The new communicators share the transport of c:
// one revocation ends them all, and only Close of the communicator from New ends the
// transport. Close them when they are no longer needed.
func Split(ctx context.Context, c *Comm, color, key int) (*Comm, error) {
	c = c.orInvalid()
	table := make([]int64, columns*c.size)
	copy(table[columns*c.rank:], []int64{int64(color), int64(key), c.shared.firstFreeLane()})
	var id uint64
	p := newPlan(c.withAlgorithm(Auto), vector{kind: transport.KindSplit, root: noRoot})
	p.body = func(o *operation) error {
		id = childID(o.env.Comm, o.env.Seq, color)
		return allGatherInPlace(o, table, offsets(equalCounts(o.size, columns)))
	}
	if err := c.run(ctx, p); err != nil {
		return nil, err
	}
	if color < 0 {
		return nil, nil
	}
	ranks, lane := membersOf(table, color)
	for i, rank := range ranks {
		ranks[i] = c.transportRank(rank)
	}
	d := c.derive(id, c.seq, ranks)
	d.algorithm = c.algorithm
	d.initTopology(lane)
	return d, nil
}

// Dup returns a communicator of the same ranks with its own sequence of calls.
func Dup(ctx context.Context, c *Comm) (*Comm, error) { return Split(ctx, c, 0, c.Rank()) }

// columns is the number of columns of the table that Split gathers: color, key, and the first lane
// that is free at the rank. Lanes are used in ascending order, so the highest of these lanes is
// free at all ranks.
const columns = 3

// membersOf returns the ranks with a color in the table, in the order of the new communicator, and
// the first lane that is free at all of them.
func membersOf(table []int64, color int) (ranks []int, lane int) {
	for rank := range len(table) / columns {
		if table[columns*rank] == int64(color) {
			ranks = append(ranks, rank)
			lane = max(lane, int(table[columns*rank+2]))
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int {
		return cmp.Compare(table[columns*a+1], table[columns*b+1])
	})
	return ranks, lane
}

// childID derives the ID of a new communicator from values that all its members know: the
// parent, the call and the color. The ID is never 0. Two equal IDs in a session are as
// unlikely as two equal random numbers of 64 bits (mixing steps of SplitMix64: Steele, Lea,
// Flood 2014).
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
