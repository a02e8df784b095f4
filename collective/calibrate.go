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

// Calibrate determines the inputs of Auto: which ranks share memory, and the costs of messages
// between other ranks. All ranks call Calibrate before any other call of the communicator, which
// must come from New. If all ranks have the same Options.Cost, and it is not the default, they keep
// this cost, for example from an earlier session. Otherwise Calibrate measures for a few
// milliseconds: reductions of 8 bytes and of 64 KiB, by recursive doubling and by a tree. If a
// reduction of 8 bytes takes more than five milliseconds, Calibrate makes only five reductions, by
// recursive doubling. All ranks get the costs of the slowest rank. If all ranks share memory there
// is nothing to measure, and Calibrate makes no call.
func (c *Comm) Calibrate(ctx context.Context) error {
	if !c.isValid() {
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

// calibrate gathers the host leaders and the costs of all ranks, and sets the hierarchy. It
// measures the costs unless all ranks have the same cost and it is not the default.
func (c *Comm) calibrate(ctx context.Context) error {
	// The communicator has a lane, so all ranks have agreed to share memory and are on one host.
	// Auto then never sends messages, so the costs of messages are not needed.
	if c.lane != nil {
		c.topology.leaders = slices.Repeat([]int{c.shared.Ranks[0]}, c.size)
		return nil
	}
	const words = 6
	leader := int64(c.self)
	if c.shared != nil {
		leader = int64(c.shared.Ranks[0])
	}
	mine := append([]int64{leader}, c.opts.Cost.femtoseconds()...)
	all := make([]int64, words*c.size)
	messages := c.withAlgorithm(RecursiveDoubling) // the hierarchy is not known yet
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
	c.topology.leaders = leaders
	c.initTopology(0)
	if same && c.opts.Cost != DefaultCost() {
		return nil
	}
	probing, n := c, c.size
	if c.level != nil {
		probing, n = c.level.leaders, c.level.groups
	}
	m := measurement{messages: messages, probing: probing, ranks: n, reduce: reduceTime()}
	cost, err := m.cost(ctx)
	if err == nil {
		c.opts.Cost = cost
	}
	return err
}

// femtoseconds returns the costs in femtoseconds, as integers that ranks can compare.
func (c Cost) femtoseconds() []int64 {
	var out []int64
	for _, v := range []float64{c.Alpha, c.Beta, c.Gamma, c.OtherAlpha, c.OtherBeta} {
		out = append(out, int64(v*1e15))
	}
	return out
}

// Parameters of the measurement: vector lengths in float64, and the number of calls of each series.
// Each series has several calls because ranks that share cores compete with other work at the
// start, so a single call can take several times the usual time.
const (
	shortProbe  = 1
	shortProbes = 12
	longProbe   = 8 << 10
	longProbes  = 4
	// farAway is the duration of a short call, in seconds, from which the hosts are treated as far
	// from each other. Between such hosts the measurement uses few calls.
	farAway = 5e-3
)

// series is a number of equal calls whose times are measured.
type series struct {
	algorithm Algorithm
	length    int // elements
	calls     int
}

// measurement measures the costs of messages, at all ranks together. If hosts or sites have several
// ranks, only the leader of each host or site makes the measured reductions.
type measurement struct {
	messages *Comm   // all ranks, by messages only, for the exchange of the results
	probing  *Comm   // the ranks of the measured calls; nil at all other ranks
	ranks    int     // number of ranks of the measured calls
	reduce   float64 // seconds in which this rank reduces a byte
}

// cost measures the costs and returns the values of the slowest rank, which are equal at all ranks.
func (m *measurement) cost(ctx context.Context) (Cost, error) {
	short, gamma, err := m.times(ctx, series{RecursiveDoubling, shortProbe, 2})
	if err != nil {
		return Cost{}, err
	}
	if short[0] > farAway {
		// The first long call lets TCP increase its congestion window.
		long, _, err := m.times(ctx, series{RecursiveDoubling, longProbe, 3})
		if err != nil {
			return Cost{}, err
		}
		return fitFar(m.ranks, short[0], long[0], gamma), nil
	}
	took, gamma, err := m.times(ctx, series{RecursiveDoubling, shortProbe, shortProbes}, series{Tree, shortProbe, shortProbes},
		series{RecursiveDoubling, longProbe, longProbes}, series{Tree, longProbe, longProbes})
	if err != nil {
		return Cost{}, err
	}
	return fit(m.ranks, [4]float64(took), gamma), nil
}

// times measures all series and returns values that are equal at all ranks. took has, for each
// series, the duration of its fastest call in seconds, where the duration of a call is the maximum
// over the ranks. gamma is the maximum of reduce over the ranks. The calls of the series are
// interleaved, so that a disturbance affects all series equally.
func (m *measurement) times(ctx context.Context, all ...series) (took []float64, gamma float64, err error) {
	rounds := 0
	for _, s := range all {
		rounds = max(rounds, s.calls)
	}
	times := make([]float64, rounds*len(all)+1)
	for i := range times[:rounds*len(all)] {
		s, round := all[i%len(all)], i/len(all)
		switch {
		// A series with fewer calls makes none in the later rounds. Infinity is never the fastest
		// time.
		case round >= s.calls:
			times[i] = math.Inf(1)
		case m.probing != nil:
			if times[i], err = m.time(ctx, s); err != nil {
				return nil, 0, err
			}
		}
	}
	// The maximum over the ranks is equal at all ranks, so all ranks make the same choices.
	times[len(times)-1] = m.reduce
	if err := AllReduce(ctx, m.messages, times, times, Max[float64]); err != nil {
		return nil, 0, err
	}
	return fastest(times[:len(times)-1], len(all)), times[len(times)-1], nil
}

// time returns the seconds that one call of a series takes at this rank.
func (m *measurement) time(ctx context.Context, s series) (seconds float64, err error) {
	v := make([]float64, s.length)
	begun := time.Now()
	err = AllReduce(ctx, m.probing.withAlgorithm(s.algorithm), v, v, Sum[float64])
	return time.Since(begun).Seconds(), err
}

// fastest returns the shortest time of each series, given the times of interleaved calls.
func fastest(times []float64, series int) []float64 {
	took := slices.Clone(times[:series])
	for i, t := range times {
		took[i%series] = min(took[i%series], t)
	}
	return took
}

// reduceTime returns the seconds per byte of a sum of vectors that do not fit the first-level
// cache, as in a long call.
func reduceTime() float64 {
	const bytes = 1 << 20
	v, w := make([]float32, bytes/4), make([]float32, bytes/4)
	add := ring.Sum[float32]()
	add.Fold(v, v, w) // first touch allocates the pages
	took := math.Inf(1)
	for range 3 { // take the fastest: on a busy core a sum takes several times as long
		begun := time.Now()
		add.Fold(v, v, w)
		took = min(took, time.Since(begun).Seconds())
	}
	return took / bytes
}

// fit returns the costs that explain measured times of reductions among n ranks: took has the times
// of a short vector by recursive doubling and by a tree, then the times of a long vector. A tree
// sends fewer messages in total, but more in sequence. So the two equations separate the cost of a
// message from the cost of concurrent messages.
func fit(n int, took [4]float64, gamma float64) Cost {
	doubling, tree := longWorkload(RecursiveDoubling, n), longWorkload(Tree, n)
	cost := Cost{Gamma: gamma}
	cost.Alpha, cost.OtherAlpha = solve([2]float64{doubling.steps, doubling.messages}, [2]float64{tree.steps, tree.messages}, took[0], took[1], 1)
	// OtherBeta is limited to half of Beta. If noise made OtherBeta larger, Auto would choose a
	// tree for long vectors, which is a bad choice: a tree sends more bytes in sequence.
	cost.Beta, cost.OtherBeta = solve([2]float64{doubling.path, doubling.bytes}, [2]float64{tree.path, tree.bytes},
		took[2]-took[0]-doubling.reduced*gamma, took[3]-took[1]-tree.reduced*gamma, 0.5)
	return cost
}

// fitFar replaces fit if hosts are so far apart that latency alone determines the time of short
// messages. Concurrent messages then add no cost.
func fitFar(n int, short, long, gamma float64) Cost {
	l := longWorkload(RecursiveDoubling, n)
	return Cost{Alpha: short / l.steps, Beta: max(minCost, (long-short-l.reduced*gamma)/l.path), Gamma: gamma}
}

// longWorkload returns the workload of an AllReduce of longProbe elements of float64 among n ranks.
func longWorkload(a Algorithm, n int) workload {
	bytes := float64(longProbe * kernel.Size[float64]())
	return workloadOf(a, request{kind: transport.KindAllReduce, ranks: n, bytes: bytes, segment: bytes, commutative: true})
}

// minCost is the lower bound of a measured Alpha or Beta, in seconds.
const minCost = 1e-15

// solve computes the cost of a unit, which is a message or a byte, and the cost that a concurrent
// unit adds, from two calls. a and b are the units of each call, in sequence and in total; tookA
// and tookB are the durations. The added cost is clipped to [0, part*unit]. If noise would make the
// added cost negative, it is 0 and the second call is ignored.
func solve(a, b [2]float64, tookA, tookB, part float64) (unit, other float64) {
	concurrentA, concurrentB := a[1]-a[0], b[1]-b[0]
	other = (b[0]*tookA - a[0]*tookB) / (b[0]*concurrentA - a[0]*concurrentB)
	unit = (tookA - concurrentA*other) / a[0]
	switch {
	case other < 0:
		unit, other = tookA/a[0], 0
	case other > part*unit:
		unit = tookA / (a[0] + part*concurrentA)
		other = part * unit
	}
	return max(unit, minCost), max(other, 0)
}

// Cost returns the costs from which Auto computes its choice.
func (c *Comm) Cost() Cost { return c.orInvalid().opts.Cost }
