package bench

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Config describes a measurement. All ranks pass equal Configs.
type Config struct {
	Collective string               // one of Collectives
	Bytes      []int                // sizes to measure; see Result.Bytes
	Type       dtype.Type           // element type
	Op         string               // sum, prod, min, max, average, and, or, xor, bitand, bitor, bitxor
	Algorithm  collective.Algorithm // algorithm of the timed calls; Auto chooses one by size
	Iters      int                  // timed calls of each size; 0 chooses by size
	InPlace    bool                 // use one vector as destination and source
	Alloc      bool                 // allocate the vectors of reductions by collective.Alloc
}

// Result is the measurement of one size. Times are in microseconds: the duration of a call at the
// slowest rank, over all iterations. The field tags are the format of elrun bench --json, on which
// scripts of users rely.
type Result struct {
	Collective string `json:"collective"`
	N          int    `json:"n"` // ranks
	// Bytes is the length of the caller's vector at each rank, rounded to a length that n ranks
	// can share. For calls in which the ranks have parts of one vector, it is the length of that
	// vector.
	Bytes     int     `json:"bytes"`
	Type      string  `json:"dtype"`
	Op        string  `json:"op"`
	Transport string  `json:"transport"`      // set by the caller
	Algorithm string  `json:"algorithm"`      // the algorithm that was used
	Auto      bool    `json:"auto,omitempty"` // set by Tune for the choice of Auto
	Iters     int     `json:"iters"`
	Min       float64 `json:"us_min"`
	P50       float64 `json:"us_p50"`
	Mean      float64 `json:"us_mean"`
	P99       float64 `json:"us_p99"`
	AlgBW     float64 `json:"algbw_gbs"` // Bytes / mean time, in 1e9 bytes/s
	BusBW     float64 `json:"busbw_gbs"` // bus bandwidth: AlgBW times the factor of nccl-tests
	// Link is the speed of the slowest link between successive ranks, as measured by Links, in
	// 1e9 bytes/s. OfBound is BusBW / Link, at most 1 for a ring. The caller sets both.
	Link    float64 `json:"link_gbs,omitempty"`
	OfBound float64 `json:"of_bound,omitempty"`
	Wrong   int64   `json:"wrong"` // wrong elements, over all ranks and iterations
	// RSSAnon is the largest anonymous resident memory of all ranks. It includes the vectors,
	// unless they are in shared memory.
	RSSAnon int64 `json:"rss_anon"` // in bytes; 0 if the system does not report it
}

// warmup is the number of iterations before the timed ones. The warm-up iterations open
// connections, fill caches, and touch the pages of the buffers. Their results are checked, too.
const warmup = 3

// Run measures the sizes one after the other and passes each result to report, at every rank. An
// error of report ends Run at this rank only.
func Run(ctx context.Context, c *collective.Comm, cfg Config, report func(Result) error) error {
	switch cfg.Type {
	case dtype.Int8:
		return runInteger[int8](ctx, c, cfg, report)
	case dtype.Int32:
		return runInteger[int32](ctx, c, cfg, report)
	case dtype.Int64:
		return runInteger[int64](ctx, c, cfg, report)
	case dtype.Uint8:
		return runInteger[uint8](ctx, c, cfg, report)
	case dtype.Uint32:
		return runInteger[uint32](ctx, c, cfg, report)
	case dtype.Uint64:
		return runInteger[uint64](ctx, c, cfg, report)
	case dtype.F32:
		return runNumber[float32](ctx, c, cfg, report)
	case dtype.F64:
		return runNumber[float64](ctx, c, cfg, report)
	case dtype.F16:
		return runNumber[dtype.Float16](ctx, c, cfg, report)
	case dtype.BF16:
		return runNumber[dtype.BFloat16](ctx, c, cfg, report)
	}
	return fmt.Errorf("bench: unknown element type %v", cfg.Type)
}

// runInteger is run for a type that also has the bitwise operations.
func runInteger[T dtype.Integer](ctx context.Context, c *collective.Comm, cfg Config, report func(Result) error) error {
	op, ok := bitOp[T](cfg.Op)
	if !ok {
		return runNumber[T](ctx, c, cfg, report)
	}
	return run(ctx, c, cfg, op, report)
}

// runNumber is run for a type with the operations of all numbers.
func runNumber[T dtype.Number](ctx context.Context, c *collective.Comm, cfg Config, report func(Result) error) error {
	op, ok := numberOp[T](cfg.Op)
	if !ok {
		return fmt.Errorf("bench: no operation %q for %v: want one of sum, prod, min, max, average, and, or, xor; for integers also bitand, bitor, bitxor", cfg.Op, cfg.Type)
	}
	return run(ctx, c, cfg, op, report)
}

// run measures all sizes with one element type.
func run[T dtype.Number](ctx context.Context, c *collective.Comm, cfg Config, op collective.Op[T], report func(Result) error) error {
	// Only the timed calls use cfg.Algorithm. The exchange of figures on c chooses its own
	// algorithm.
	timed := c.With(collective.CallOptions{Algorithm: cfg.Algorithm})
	// Each size has buffers of its own. A large size leaves garbage that would count as memory of
	// the next one.
	for i, bytes := range cfg.Bytes {
		if i > 0 && cfg.Bytes[i-1] >= 1<<20 {
			releaseMemory()
		}
		if cfg.Collective == "barrier" {
			// A barrier carries no data, whatever the requested size.
			bytes = 0
		}
		k, err := newCase(cfg, timed, bytes, op)
		if err != nil {
			return err
		}
		m := measurement[T]{call: k, values: newValues[T](cfg.Op, c.Size()), comm: c, iters: Iterations(cfg.Iters, bytes)}
		r, err := m.run(ctx)
		if err != nil {
			return fmt.Errorf("bench: %s of %d bytes: %w", cfg.Collective, bytes, err)
		}
		// Every rank has left the last call, because the ranks have exchanged figures after it.
		if err := k.free(c); err != nil {
			return fmt.Errorf("bench: %s of %d bytes: %w", cfg.Collective, bytes, err)
		}
		r.Collective, r.N, r.Type, r.Op = cfg.Collective, c.Size(), cfg.Type.String(), cfg.Op
		if r.Algorithm, err = chosen(timed, cfg, r.Bytes); err != nil {
			return err
		}
		if err := report(r); err != nil {
			return fmt.Errorf("bench: report: %w", err)
		}
		if cfg.Collective == "barrier" {
			break // a barrier has no vector, so there is one size
		}
	}
	return nil
}

// releaseMemory releases the memory of the previous size, so that RSSAnon covers only the next one.
// Pooled memory, such as scratch vectors, survives one collection.
func releaseMemory() {
	runtime.GC()
	debug.FreeOSMemory()
}

// chosen returns the name of the algorithm for calls of a size.
func chosen(c *collective.Comm, cfg Config, bytes int) (string, error) {
	kind := transport.KindPoint // sendrecv
	// The kinds of calls from KindAllReduce up to KindPoint are consecutive, and their texts are
	// the names in Collectives.
	for k := transport.KindAllReduce; k < transport.KindPoint; k++ {
		if k.String() == cfg.Collective {
			kind = k
		}
	}
	a, err := c.Choice(kind, bytes, true) // all operations here commute
	return a.String(), err
}

// Iterations returns asked, or, if asked is 0, a number of iterations that take a few seconds at
// most for this size.
func Iterations(asked, bytes int) int {
	switch {
	case asked > 0:
		return asked
	case bytes <= 64<<10:
		return 200
	case bytes <= 1<<20:
		return 50
	}
	return 10
}

// measurement is the measurement of one size. All ranks make the same calls in the same order.
type measurement[T dtype.Number] struct {
	call   benchCase[T]
	values values[T]
	comm   *collective.Comm
	iters  int
}

// run makes all iterations and combines the figures of all ranks.
func (m *measurement[T]) run(ctx context.Context) (Result, error) {
	times := make([]float64, 0, m.iters)
	wrong, memory := []int64{0}, []int64{0}
	for i := range warmup + m.iters {
		took, bad, err := m.iterate(ctx, i)
		if err != nil {
			return Result{}, err
		}
		wrong[0] += bad
		if i >= warmup {
			times = append(times, float64(took)/float64(time.Microsecond))
		}
	}
	// The time of a call is the time of its slowest rank. Times are exchanged only at the end, so
	// that between two timed calls there are only barriers.
	if err := collective.AllReduce(ctx, m.comm, times, times, collective.Max[float64]); err != nil {
		return Result{}, err
	}
	if err := collective.AllReduce(ctx, m.comm, wrong, wrong, collective.Sum[int64]); err != nil {
		return Result{}, err
	}
	memory[0] = anonymous()
	if err := collective.AllReduce(ctx, m.comm, memory, memory, collective.Max[int64]); err != nil {
		return Result{}, err
	}
	r := Result{Bytes: m.call.whole * kernel.Size[T](), Iters: m.iters, Wrong: wrong[0], RSSAnon: memory[0]}
	r.summarise(times, m.call.factor)
	return r, nil
}

// iterate makes iteration t. A rank that leaves the first barrier early waits for the others inside
// the call, and this wait is a part of the measured time. No rank checks its result before the
// second barrier: a check would slow down ranks on the same core that are still in the call.
func (m *measurement[T]) iterate(ctx context.Context, t int) (took time.Duration, wrong int64, err error) {
	k := &m.call
	m.values.poison(k.dst) // before fill, because src may be a part of dst
	m.values.fill(k.src, m.values.start(m.comm.Rank(), 0, t))
	if err := collective.Barrier(ctx, m.comm); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := k.do(ctx, k.dst, k.src); err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	if err := collective.Barrier(ctx, m.comm); err != nil {
		return 0, 0, err
	}
	for _, s := range k.spans {
		wrong += m.values.check(k.dst[s.first:s.end], s, t)
	}
	return took, wrong, nil
}

// summarise sets the figures that follow from the times, in microseconds. It sorts times.
func (r *Result) summarise(times []float64, factor float64) {
	slices.Sort(times)
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	r.Mean = sum / float64(len(times))
	r.Min, r.P50, r.P99 = times[0], quantile(times, 0.5), quantile(times, 0.99)
	if r.Mean > 0 {
		// Bytes per microsecond are 1e6 bytes/s, and AlgBW has the unit 1e9 bytes/s.
		r.AlgBW = float64(r.Bytes) / r.Mean / 1000
	}
	r.BusBW = r.AlgBW * factor
}

// quantile returns the q-quantile of sorted times: the smallest time such that at least the
// fraction q of all times is not above it.
func quantile(times []float64, q float64) float64 {
	// Adding almost 1 rounds up, but not a whole number that a rounding error has made slightly
	// larger.
	i := int(q*float64(len(times))+0.999999) - 1
	return times[min(max(i, 0), len(times)-1)]
}
