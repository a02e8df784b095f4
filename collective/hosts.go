package collective

import (
	"context"
	"slices"

	"github.com/elrun/elrun/internal/raw"
)

// hosts is how the ranks of a communicator lie on several hosts, some of which have more
// than one: those of a host share memory.
type hosts struct {
	local   *Comm  // the ranks of this host
	leaders *Comm  // the first rank of each host; nil at the others
	number  int    // of hosts
	turns   *turns // calls use both one after the other
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
	var local, first []int // ranks of the transport
	for rank := range c.size {
		at := c.inWorld(rank)
		if c.leaders[at] == c.leaders[c.self] {
			local = append(local, at)
		}
		if !slices.ContainsFunc(first, func(r int) bool { return c.leaders[r] == c.leaders[at] }) {
			first = append(first, at)
		}
	}
	if len(first) == c.size {
		return // a rank each
	}
	h := &hosts{local: c.part(local, localColor), number: len(first), turns: newTurns()}
	h.local.lane = h.local.takeLane(lane)
	if slices.Contains(first, c.self) {
		h.leaders = c.part(first, leaderColor)
	}
	c.hosts = h
}

// part is a communicator of some ranks of the transport, all of which make it.
func (c *Comm) part(ranks []int, color int) *Comm {
	id := childID(c.id, uint32(ranks[0]), color)
	return &Comm{world: c.world, seq: c.sequence(id), id: id, rank: slices.Index(ranks, c.self), size: len(ranks), ranks: ranks}
}

// levelPiece is how much of a vector is on its way between hosts while the ranks of each
// combine the next.
const levelPiece = 1 << 20

// allReduceLevels combines the vectors of each host in its memory, then those sums
// between one rank of each host, and hands the result out in memory. So each byte goes
// from one host to the next once, however many ranks there are.
func allReduceLevels[T Number](o *operation, dst, src []T, red Reduction[T]) error {
	if err := o.turns.enter(o); err != nil {
		return err
	}
	// The last step of a reduction is of all ranks.
	whole := red
	red.Finish = nil
	l := levels[T]{operation: o, dst: dst, src: src, op: func() Reduction[T] { return red }}
	if err := l.run(max(1, levelPiece/raw.Size[T]())); err != nil {
		return err
	}
	finish(whole, dst, o.size)
	return nil
}

// levels is such a call under way.
type levels[T Number] struct {
	*operation
	dst, src []T
	op       Op[T]
}

// run goes through the vector by pieces: while one is between the hosts the next is
// combined within them. What ends the call revokes, so that its parts need no context.
func (l *levels[T]) run(step int) error {
	ctx := context.Background()
	local, leaders := l.hosts.local, l.hosts.leaders
	for first := 0; first == 0 || first < len(l.src); first += step {
		piece := l.dst[first:min(first+step, len(l.src))]
		if first == 0 {
			if err := l.gather(0, len(piece)); err != nil {
				return err
			}
		}
		var crossing *Handle
		if leaders != nil {
			crossing = IAllReduce(ctx, leaders, piece, piece, l.op)
		}
		if next := first + step; next < len(l.src) {
			if err := l.gather(next, min(next+step, len(l.src))); err != nil {
				return err
			}
		}
		if crossing != nil {
			if err := crossing.Wait(ctx); err != nil {
				return err
			}
		}
		if err := Broadcast(ctx, local, piece, 0); err != nil {
			return err
		}
		l.moved()
	}
	return nil
}

// gather combines a piece of the vectors of this host at its first rank.
func (l *levels[T]) gather(first, end int) error {
	return Reduce(context.Background(), l.hosts.local, l.dst[first:end], l.src[first:end], l.op, 0)
}
