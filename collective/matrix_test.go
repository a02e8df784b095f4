package collective_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/transport/mem"
)

// way is a kind of call together with its algorithm.
type way struct {
	kind      string
	algorithm collective.Algorithm
}

// row is a kind of call with the algorithms that support it.
type row struct {
	kind       string
	algorithms []collective.Algorithm
}

// reducing lists the calls that reduce.
func reducing() []row {
	const auto, ring, tree, doubling = collective.Auto, collective.Ring, collective.Tree, collective.RecursiveDoubling
	return []row{
		{"allreduce", []collective.Algorithm{auto, ring, doubling, collective.Rabenseifner, tree}},
		{"reducescatter", []collective.Algorithm{auto, ring, tree}},
		{"reducescatterv", []collective.Algorithm{auto, ring, tree}},
		{"reduce", []collective.Algorithm{auto, ring, tree}},
		{"scan", []collective.Algorithm{auto, doubling}},
		{"exscan", []collective.Algorithm{auto, doubling}},
	}
}

// carrying lists the calls without a reduction.
func carrying() []row {
	const auto, ring, tree, doubling = collective.Auto, collective.Ring, collective.Tree, collective.RecursiveDoubling
	return []row{
		{"allgather", []collective.Algorithm{auto, ring, doubling, tree}},
		{"allgatherv", []collective.Algorithm{auto, ring, doubling, tree}},
		{"broadcast", []collective.Algorithm{auto, ring, tree}},
		{"gather", []collective.Algorithm{auto, tree, collective.Direct}},
		{"gatherv", []collective.Algorithm{auto, tree, collective.Direct}},
		{"scatter", []collective.Algorithm{auto, tree, collective.Direct}},
		{"scatterv", []collective.Algorithm{auto, tree, collective.Direct}},
		{"alltoall", []collective.Algorithm{auto, collective.Direct}},
		{"alltoallv", []collective.Algorithm{auto, collective.Direct}},
		{"sendrecv", []collective.Algorithm{auto}},
		{"exchange", []collective.Algorithm{auto}},
		{"receiveany", []collective.Algorithm{auto}},
		{"barrier", []collective.Algorithm{auto, doubling}},
	}
}

// ways lists the ways of rows, without the ring for an operation that does not commute.
func ways(rows []row, ordered bool) []way {
	var all []way
	for _, r := range rows {
		for _, a := range r.algorithms {
			if a != collective.Ring || !ordered {
				all = append(all, way{r.kind, a})
			}
		}
	}
	return all
}

// calls lists the calls of the matrix for n ranks: every way and length. The fields root, inPlace
// and async vary from call to call.
func calls(ways []way, n int, lengths []int) []call {
	var all []call
	for _, w := range ways {
		for _, length := range lengths {
			i := len(all)
			all = append(all, call{kind: w.kind, algorithm: w.algorithm, length: length,
				root: i * 5 % n, inPlace: i/2%2 == 1, async: i%2 == 1})
		}
	}
	return all
}

// lengths returns vector lengths that split differently among n ranks.
func lengths(n int, long ...int) []int {
	all := append([]int{0, 1, n - 1, n, n + 1}, long...)
	slices.Sort(all)
	return slices.Compact(all)
}

// job is a list of calls with one load.
type job struct {
	load  runner
	calls []call
}

// matrix lists the calls of every kind, operation, type and algorithm.
func matrix(n int, lengths []int) []job {
	var jobs []job
	longest := slices.Max(lengths)
	for _, s := range suites() {
		l := s.prepare(moving, n, n*longest)
		jobs = append(jobs, job{l, calls(ways(carrying(), false), n, lengths)})
		for _, op := range s.opNames() {
			l := s.prepare(op, n, longest)
			jobs = append(jobs, job{l, calls(ways(reducing(), l.ordered()), n, lengths)})
		}
	}
	return jobs
}

// messages returns transports of n ranks that send messages.
func messages(n int) []transport.Transport {
	ts := make([]transport.Transport, 0, n)
	for _, e := range mem.New(n) {
		ts = append(ts, e)
	}
	return ts
}

// sharing returns transports of hosts with the given numbers of ranks; the ranks of a host
// share memory.
func sharing(t *testing.T, perHost ...int) []transport.Transport {
	t.Helper()
	all, err := mem.NewShared(perHost...)
	if err != nil {
		t.Fatal(err)
	}
	ts := make([]transport.Transport, 0, len(all))
	for _, e := range all {
		ts = append(ts, e)
	}
	return ts
}

// runJobs carries out all calls at the ranks of the transports, one after the other.
func runJobs(t *testing.T, ts []transport.Transport, o collective.Options, jobs []job) {
	t.Helper()
	errs := cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
		if err := c.Calibrate(ctx); err != nil {
			return err
		}
		return runAll(ctx, c, jobs)
	}, cluster.Over(ts), cluster.WithOptions(o), cluster.MayFail())
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// runAll carries out all calls at the rank of c, one after the other.
func runAll(ctx context.Context, c *collective.Comm, jobs []job) error {
	for _, j := range jobs {
		if err := j.run(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (j job) run(ctx context.Context, c *collective.Comm) error {
	for _, k := range j.calls {
		if err := j.load.run(ctx, c, k); err != nil {
			return err
		}
	}
	return nil
}

// ranks lists the numbers of ranks in the matrix. Under the race detector calls are ten times
// slower, so fewer numbers are tested.
func ranks() []int {
	if racing {
		return []int{1, 2, 3, 5}
	}
	return []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
}

// Every kind of call, operation, type, algorithm and number of ranks gives the result of
// the definition, to the bit.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for _, n := range ranks() {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			runJobs(t, messages(n), collective.Options{}, matrix(n, lengths(n, 1000)))
		})
	}
}

// The matrix gives the same bits over every kind of path of package p2p: shared memory, direct connections and streams of libp2p.
func TestMatrixOverP2P(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"shm", "direct", "p2p"} {
		for _, n := range []int{2, 3} {
			if racing && n > 2 {
				continue
			}
			t.Run(fmt.Sprintf("%s n=%d", path, n), func(t *testing.T) {
				ts := cluster.NewHostsBy(t, n, path).Transports(t)
				if shared := ts[0].(transport.Sharer).Shared() != nil; shared != (path == "shm") {
					t.Errorf("the ranks share memory: %v", shared)
				}
				runJobs(t, ts, collective.Options{}, matrix(n, lengths(n, 41)))
			})
		}
	}
}

// Short segments exercise the pipelines that otherwise need long vectors.
func TestMatrixOfSegments(t *testing.T) {
	t.Parallel()
	for n, segment := range []int{2: 8, 3: 64, 4: 16, 5: 8, 7: 16, 8: 64} {
		if segment == 0 || racing && n > 4 {
			continue
		}
		t.Run(fmt.Sprintf("n=%d segment=%d", n, segment), func(t *testing.T) {
			runJobs(t, messages(n), collective.Options{Segment: segment}, matrix(n, []int{3*n + 1, 41}))
		})
	}
}
