package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/transport/mem"
)

// example is the testing.TB of the examples, which have no *testing.T.
type example struct {
	testing.TB
	cleanup []func()
}

func (e *example) Helper()                  {}
func (e *example) Context() context.Context { return context.Background() }
func (e *example) Name() string             { return "ExampleInProcesses" }
func (e *example) Cleanup(f func())         { e.cleanup = append(e.cleanup, f) }
func (e *example) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }
func (e *example) Errorf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// Four ranks, each a goroutine of one test, add up their numbers.
func ExampleRun() {
	t := &example{} // in a test: func TestSum(t *testing.T)
	cluster.Run(t, 4, func(ctx context.Context, c *collective.Comm) error {
		sum := []int64{int64(c.Rank())}
		if err := collective.AllReduce(ctx, c, sum, sum, collective.Sum[int64]); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(sum[0])
		}
		return nil
	})
	// Output: 6
}

// One rank returns an error, and the call of the other rank fails as well. Run returns both errors.
func ExampleMayFail() {
	t := &example{}
	errs := cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		if c.Rank() == 1 {
			return errors.New("out of paper")
		}
		return collective.Barrier(ctx, c)
	}, cluster.MayFail())
	fmt.Println(errors.Is(errs[0], collective.ErrRevoked))
	fmt.Println(errs[1])
	// Output:
	// true
	// rank 1: out of paper
}

// Two hosts have two ranks each. The ranks of a host share memory.
func ExampleOver() {
	t := &example{}
	ts, err := mem.NewShared(2, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Run(t, 4, collective.Barrier, cluster.Over(ts))
	fmt.Println("all were there")
	// Output: all were there
}

// Three ranks call Barrier over libp2p.
func ExampleOverP2P() {
	t := &example{}
	defer t.end()
	cluster.Run(t, 3, collective.Barrier, cluster.OverP2P())
	fmt.Println("all were there")
	// Output: all were there
}

// Two ranks call Barrier, each in a process of its own.
func ExampleInProcesses() {
	t := &example{}
	cluster.Run(t, 2, collective.Barrier, cluster.InProcesses())
	fmt.Println("all were there")
	// Output: all were there
}

// Transfers use small segments, so that even short vectors have several segments.
func ExampleWithOptions() {
	t := &example{}
	cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		v := make([]float32, 100)
		return collective.AllReduce(ctx, c, v, v, collective.Sum[float32])
	}, cluster.WithOptions(collective.Options{Segment: 64}))
	fmt.Println("summed")
	// Output: summed
}

// Several views of the same hosts follow each other.
func ExampleNewHosts() {
	t := &example{}
	defer t.end()
	hosts := cluster.NewHosts(t, 2)
	for view := range 2 {
		cluster.Run(t, 2, collective.Barrier, cluster.Over(hosts.Transports(t)))
		fmt.Println("view", view)
	}
	// Output:
	// view 0
	// view 1
}

// Two ranks call Barrier over streams of libp2p. The best kind of path would be shared memory.
func ExampleNewHostsBy() {
	t := &example{}
	defer t.end()
	cluster.Run(t, 2, collective.Barrier, cluster.Over(cluster.NewHostsBy(t, 2, "p2p").Transports(t)))
	fmt.Println("all were there")
	// Output: all were there
}

// A member dies in the middle of a loop, and the other members finish the loop. In a synctest
// bubble, the time before the death would be virtual.
func ExampleStart() {
	t := &example{}
	job := cluster.Start(t, 3, simnet.New(simnet.Config{Seed: 1}), func(ctx context.Context, g *elastic.Group) error {
		step, x := int64(0), []float64{0}
		for turn := range g.Steps(ctx, elastic.Vectors(&step, &x), 20) {
			one := []float64{1}
			if err := collective.AllReduce(ctx, turn.Comm, one, one, collective.Max[float64]); err != nil {
				continue
			}
			x[0] += one[0]
			step++
			<-time.After(time.Millisecond)
		}
		if g.Self().Index == 0 {
			fmt.Println(step, x[0])
		}
		return g.Err()
	})
	time.AfterFunc(5*time.Millisecond, func() { job.Kill(2) })
	job.Wait()
	// Output: 20 20
}

// end runs the cleanup functions in reverse order, as the testing package does after a test.
func (e *example) end() {
	for i := len(e.cleanup) - 1; i >= 0; i-- {
		e.cleanup[i]()
	}
}
