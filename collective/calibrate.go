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
// milliseconds: reductions of 8 bytes and of 64 KiB, by recursive doubling. If a reduction of 8
// bytes takes more than five milliseconds, Calibrate makes only five reductions. All ranks get the
// costs of the slowest rank. If all ranks share memory there is nothing to measure, and Calibrate
// makes no call.
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
	const words = 4
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

// Parameters of the measurement: vector lengths in float64, and the number of calls. A length has
// several calls because ranks that share cores compete with other work at the start, so a single
// call can take several times the usual time.
const (
	shortProbe  = 1
	shortProbes = 12
	longProbe   = 8 << 10
	longProbes  = 4
	// farAway is the duration of a short call, in seconds, from which the hosts are treated as far
	// from each other. Between such hosts the measurement uses few calls.
	farAway = 5e-3
)

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
	short, gamma, err := m.fastest(ctx, shortProbe, 2)
	if err != nil {
		return Cost{}, err
	}
	calls := 3 // of the long vector; the first one lets TCP increase its congestion window
	if short <= farAway {
		calls = longProbes
		if short, gamma, err = m.fastest(ctx, shortProbe, shortProbes); err != nil {
			return Cost{}, err
		}
	}
	long, _, err := m.fastest(ctx, longProbe, calls)
	return costOf(m.ranks, short, long, gamma), err
}

// fastest returns the seconds of the fastest of a number of reductions of length elements, where
// the duration of a call is the maximum over the ranks. gamma is the maximum of reduce over the
// ranks. The maxima are equal at all ranks, so all ranks make the same choices.
func (m *measurement) fastest(ctx context.Context, length, calls int) (took, gamma float64, err error) {
	times, v := make([]float64, calls+1), make([]float64, length)
	times[calls] = m.reduce
	for i := range calls {
		if m.probing == nil {
			break
		}
		begun := time.Now()
		if err = AllReduce(ctx, m.probing.withAlgorithm(RecursiveDoubling), v, v, Sum[float64]); err != nil {
			return 0, 0, err
		}
		times[i] = time.Since(begun).Seconds()
	}
	if err = AllReduce(ctx, m.messages, times, times, Max[float64]); err != nil {
		return 0, 0, err
	}
	return slices.Min(times[:calls]), times[calls], nil
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

// costOf returns the costs that explain the seconds which reductions of shortProbe and of longProbe
// elements take among n ranks. In such a reduction all ranks send at the same time, so the costs
// contain the delays by which the ranks of one host slow each other down.
func costOf(n int, short, long, gamma float64) Cost {
	const minCost = 1e-15 // a cost of 0 would make all algorithms equal
	l := probeWorkload(n)
	return Cost{Alpha: max(minCost, short/l.steps), Beta: max(minCost, (long-short-l.reduced*gamma)/l.path), Gamma: gamma}
}

// probeWorkload returns the workload of a reduction of longProbe elements among n ranks.
func probeWorkload(n int) workload {
	bytes := float64(longProbe * kernel.Size[float64]())
	return workloadOf(RecursiveDoubling, request{kind: transport.KindAllReduce, ranks: n, bytes: bytes, segment: bytes, commutative: true})
}
