package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/internal/raw"
	"github.com/elrun/elrun/ring"
)

// Calibrate finds out what Auto needs to know: which ranks share memory, and what messages
// between the others cost. All ranks call it before any other call of the communicator,
// which must be one of New. Ranks that all bring the same Options.Cost, that is, the Cost
// of a session before, keep it. Otherwise it measures for a few milliseconds: an empty
// message, one of 16 KiB, and where that took less than a millisecond one of 256 KiB,
// between neighbours. Everyone ends with the costs of the slowest.
func (c *Comm) Calibrate(ctx context.Context) error {
	if c.size == 1 {
		return nil
	}
	if err := c.calibrate(ctx); err != nil {
		return fmt.Errorf("collective: calibrate: %w", err)
	}
	return nil
}

func (c *Comm) calibrate(ctx context.Context) error {
	const words = 4
	leader := int64(c.self)
	if c.shared != nil {
		leader = int64(c.shared.Ranks[0])
	}
	mine := append([]int64{leader}, c.opts.Cost.words()...)
	all := make([]int64, words*c.size)
	messages := c.Using(RecursiveDoubling) // whatever else there is, nobody knows of yet
	if err := AllGather(ctx, messages, all, mine); err != nil {
		return err
	}
	leaders := make([]int, c.size)
	same := true
	for rank := range c.size {
		row := all[words*rank:][:words]
		leaders[rank] = int(row[0])
		same = same && slices.Equal(row[1:], mine[1:])
	}
	c.divide(leaders)
	c.settle(0)
	if c.lane != nil || same && c.opts.Cost != DefaultCost() {
		return nil
	}
	return c.measure(ctx, messages)
}

// words are the costs in picoseconds.
func (c Cost) words() []int64 {
	return []int64{int64(c.Alpha * 1e12), int64(c.Beta * 1e12), int64(c.Gamma * 1e12)}
}

// Sizes of the messages that are measured, in bytes, and how often each goes.
const (
	shortProbe = 16 << 10
	longProbe  = 256 << 10
	probes     = 4
)

// measure replaces the costs by what messages to the right neighbour take.
func (c *Comm) measure(ctx context.Context, messages *Comm) error {
	took := make([]int64, 3)
	for i, size := range []int{0, shortProbe} {
		if err := c.probe(ctx, size, &took[i]); err != nil {
			return err
		}
	}
	took[2] = int64(foldTime())
	if err := AllReduce(ctx, messages, took, took, Max[int64]); err != nil {
		return err
	}
	size, long := shortProbe, []int64{took[1]}
	if time.Duration(took[1]) < time.Millisecond {
		size = longProbe
		if err := c.probe(ctx, size, &long[0]); err != nil {
			return err
		}
		if err := AllReduce(ctx, messages, long, long, Max[int64]); err != nil {
			return err
		}
	}
	seconds := func(ns int64) float64 { return float64(max(ns, 1)) / 1e9 }
	c.opts.Cost = Cost{
		Alpha: seconds(took[0]),
		Beta:  seconds(long[0]-took[0]) / float64(size),
		Gamma: seconds(took[2]) / longProbe,
	}
	return nil
}

// probe sets took to the least time, in nanoseconds, in which this rank has sent a
// message to the right and has received one from the left.
func (c *Comm) probe(ctx context.Context, size int, took *int64) error {
	out, in := make([]uint8, size), make([]uint8, size)
	right, left := (c.rank+1)%c.size, (c.rank-1+c.size)%c.size
	*took = 1 << 62
	for range probes {
		begun := time.Now()
		sent := ISend(ctx, c, right, 0, out)
		if err := errors.Join(Recv(ctx, c, left, 0, in), sent.Wait(ctx)); err != nil {
			return err
		}
		*took = min(*took, int64(time.Since(begun)))
	}
	return nil
}

// foldTime is how long it takes to add longProbe bytes.
func foldTime() time.Duration {
	v := make([]float32, longProbe/raw.Size[float32]())
	add := ring.Sum[float32]()
	add.Fold(v, v, v) // the pages come
	begun := time.Now()
	add.Fold(v, v, v)
	return time.Since(begun)
}

// Cost returns what Auto reckons with.
func (c *Comm) Cost() Cost { return c.opts.Cost }
