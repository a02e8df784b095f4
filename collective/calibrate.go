package collective

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/ring"
)

// Calibrate finds out what Auto needs to know: which ranks share memory, and what messages
// between the others cost. All ranks call it before any other call of the communicator,
// which must be one of New. Ranks that all bring the same Options.Cost, that is, the Cost
// of a session before, keep it. Otherwise it measures for a few milliseconds: reductions of
// 8 bytes and of 64 KiB, by recursive doubling and by a tree; where messages take longer
// than that, only five by recursive doubling. Everyone ends with the costs of the
// slowest.
func (c *Comm) Calibrate(ctx context.Context) error {
	if !c.made() {
		return fmt.Errorf("collective: calibrate: %w", errNil)
	}
	if c.size == 1 {
		return nil
	}
	if err := c.calibrate(ctx); err != nil {
		return fmt.Errorf("collective: calibrate: %w", err)
	}
	return nil
}

func (c *Comm) calibrate(ctx context.Context) error {
	const words = 6
	leader := int64(c.self)
	if c.shared != nil {
		leader = int64(c.shared.Ranks[0])
	}
	mine := append([]int64{leader}, c.opts.Cost.words()...)
	all := make([]int64, words*c.size)
	messages := c.using(RecursiveDoubling) // whatever else there is, nobody knows of yet
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

// words are the costs in femtoseconds.
func (c Cost) words() []int64 {
	var out []int64
	for _, v := range []float64{c.Alpha, c.Beta, c.Gamma, c.OtherAlpha, c.OtherBeta} {
		out = append(out, int64(v*1e15))
	}
	return out
}

// What is measured: vectors of so many float64, and how often each call is made. Ranks that
// share cores are in each other's way at the start, when each still has other things to do:
// of calls that take a hundred microseconds some take eight times as long.
const (
	shortProbe  = 1
	shortProbes = 12
	longProbe   = 8 << 10
	longProbes  = 4
	// farAway is how long a short call takes, in seconds, where hosts are far from each
	// other: there few calls must do.
	farAway = 5e-3
)

// series is some equal calls whose time is taken.
type series struct {
	algorithm Algorithm
	length    int
	calls     int
}

// measure replaces the costs by what reductions take. Where hosts or sites have several ranks
// it is one of each that reduces.
func (c *Comm) measure(ctx context.Context, messages *Comm) error {
	probing, n := c, c.size
	if c.level != nil {
		probing, n = c.level.leaders, c.level.number
	}
	short, gamma, err := messages.agree(ctx, probing, series{RecursiveDoubling, shortProbe, 2})
	if err != nil {
		return err
	}
	if short[0] > farAway {
		// The first long one makes room in the windows of TCP.
		long, _, err := messages.agree(ctx, probing, series{RecursiveDoubling, longProbe, 3})
		if err == nil {
			c.opts.Cost = fitFar(n, short[0], long[0], gamma)
		}
		return err
	}
	took, gamma, err := messages.agree(ctx, probing, series{RecursiveDoubling, shortProbe, shortProbes}, series{Tree, shortProbe, shortProbes},
		series{RecursiveDoubling, longProbe, longProbes}, series{Tree, longProbe, longProbes})
	if err == nil {
		c.opts.Cost = fit(n, [4]float64(took), gamma)
	}
	return err
}

// agree makes calls of the probing communicator, nil at ranks that have no part in it, and
// returns for each series the seconds that the fastest of its calls took at the slowest
// rank; and those for folding a byte. The series take turns, so that what ranks do beside
// that at the start is in all of them.
func (c *Comm) agree(ctx context.Context, probing *Comm, all ...series) (took []float64, gamma float64, err error) {
	rounds := 0
	for _, s := range all {
		rounds = max(rounds, s.calls)
	}
	times := make([]float64, rounds*len(all)+1)
	for i := range times[:rounds*len(all)] {
		s, round := all[i%len(all)], i/len(all)
		switch {
		case round >= s.calls:
			times[i] = math.Inf(1)
		case probing != nil:
			if times[i], err = probing.time(ctx, s); err != nil {
				return nil, 0, err
			}
		}
	}
	times[len(times)-1] = foldTime()
	if err := AllReduce(ctx, c, times, times, Max[float64]); err != nil {
		return nil, 0, err
	}
	return fastest(times[:len(times)-1], len(all)), times[len(times)-1], nil
}

// fastest returns the shortest time of each of so many series that took turns.
func fastest(times []float64, series int) []float64 {
	took := slices.Clone(times[:series])
	for i, t := range times {
		took[i%series] = min(took[i%series], t)
	}
	return took
}

// time returns the seconds that a call of a series takes at this rank.
func (c *Comm) time(ctx context.Context, s series) (seconds float64, err error) {
	v := make([]float64, s.length)
	begun := time.Now()
	err = AllReduce(ctx, c.using(s.algorithm), v, v, Sum[float64])
	return time.Since(begun).Seconds(), err
}

// foldTime returns the seconds that adding a byte takes, to vectors that come from beyond
// the nearest caches, as long ones do.
func foldTime() float64 {
	const bytes = 1 << 20
	v, w := make([]float32, bytes/4), make([]float32, bytes/4)
	add := ring.Sum[float32]()
	add.Fold(v, v, w) // the pages come
	took := math.Inf(1)
	for range 3 { // a core that has something else to do meanwhile takes several times as long
		begun := time.Now()
		add.Fold(v, v, w)
		took = min(took, time.Since(begun).Seconds())
	}
	return took / bytes
}

// fit returns the costs under which reductions of n ranks take the times that were seen:
// those of a short vector by recursive doubling and by a tree, which sends fewer messages
// but more one after the other, then those of a long one.
func fit(n int, took [4]float64, gamma float64) Cost {
	doubling, tree := longLoad(RecursiveDoubling, n), longLoad(Tree, n)
	cost := Cost{Gamma: gamma}
	cost.Alpha, cost.OtherAlpha = solve([2]float64{doubling.steps, doubling.messages}, [2]float64{tree.steps, tree.messages}, took[0], took[1], 1)
	// That bytes share something is believed by half: a tree, which gains by it what it sends
	// too much, would be a bad choice for long vectors if it came of noise.
	cost.Beta, cost.OtherBeta = solve([2]float64{doubling.path, doubling.bytes}, [2]float64{tree.path, tree.bytes},
		took[2]-took[0]-doubling.folded*gamma, took[3]-took[1]-tree.folded*gamma, 0.5)
	return cost
}

// fitFar is fit for hosts whose distance is all that counts for short messages.
func fitFar(n int, short, long, gamma float64) Cost {
	l := longLoad(RecursiveDoubling, n)
	return Cost{Alpha: short / l.steps, Beta: max(least, (long-short-l.folded*gamma)/l.path), Gamma: gamma}
}

// longLoad is that of an AllReduce of longProbe elements.
func longLoad(a Algorithm, n int) load {
	bytes := float64(longProbe * kernel.Size[float64]())
	return loadOf(a, need{kind: transport.KindAllReduce, ranks: n, bytes: bytes, piece: bytes, commutative: true})
}

// least is what anything costs at least.
const least = 1e-15

// solve finds what a unit costs and what others add that go at the same time, from two
// calls: how many units each has one after the other, and in all, and what it took. Others
// add at most a part of what a unit costs, and nothing less than nothing: where noise gives
// that, the second call does not count.
func solve(a, b [2]float64, tookA, tookB, part float64) (unit, other float64) {
	besideA, besideB := a[1]-a[0], b[1]-b[0]
	other = (b[0]*tookA - a[0]*tookB) / (b[0]*besideA - a[0]*besideB)
	unit = (tookA - besideA*other) / a[0]
	switch {
	case other < 0:
		unit, other = tookA/a[0], 0
	case other > part*unit:
		unit = tookA / (a[0] + part*besideA)
		other = part * unit
	}
	return max(unit, least), max(other, 0)
}

// Cost returns what Auto reckons with.
func (c *Comm) Cost() Cost { return c.orNobody().opts.Cost }
