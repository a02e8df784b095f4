package collective_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/transport/mem"
)

// manyCalls is the number of calls that these tests have outstanding at once.
const manyCalls = 200

// All outstanding calls of a communicator in shared memory share one goroutine at each
// rank, so no goroutine needs to wake another.
func TestOutstandingInMemory(t *testing.T) { // alone, as it counts goroutines
	const n = 2
	open := make(chan struct{})
	before := runtime.NumGoroutine()
	var most int
	overShared(t, n, func(ctx context.Context, c *collective.Comm) error {
		slow := collective.NewOp("slow", true, func(dst, a, b []int64) {
			<-open
			for i := range dst {
				dst[i] = a[i] + b[i]
			}
		})
		v := make([][]int64, manyCalls)
		var handles []*collective.Handle
		for i := range v {
			v[i] = []int64{int64(i + c.Rank())}
			handles = append(handles, collective.IAllReduce(ctx, c, v[i], v[i], slow))
		}
		if c.Rank() == 0 {
			most = runtime.NumGoroutine() - before
			close(open)
		}
		for i, h := range handles {
			if err := h.Wait(ctx); err != nil {
				return err
			}
			if want := int64(n*i + 1); v[i][0] != want {
				return fmt.Errorf("call %d: %d, want %d", i, v[i][0], want)
			}
		}
		return nil
	})
	if most >= manyCalls/2 {
		t.Errorf("%d goroutines for %d calls", most, manyCalls)
	}
}

// A call that waits for its turn in shared memory ends with its context, however long the previous
// call takes.
func TestCancelOutstandingInMemory(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	errs := cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		if c.Rank() == 1 {
			<-ended // this rank makes none of the calls
			return nil
		}
		defer close(ended)
		v := make([]int64, 2)
		first := collective.IAllReduce(ctx, c, v[:1], v[:1], collective.Sum[int64])
		short, cancel := context.WithCancel(ctx)
		second := collective.IAllReduce(short, c, v[1:], v[1:], collective.Sum[int64])
		cancel()
		return errors.Join(first.Wait(ctx), second.Wait(ctx))
	}, cluster.Over(sharing(t, 2)), cluster.MayFail())
	if !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[0], collective.ErrRevoked) {
		t.Errorf("%v", errs)
	}
}

// A user's reduction that ends its goroutine ends its call and the calls after it.
func TestGoexitInOutstanding(t *testing.T) {
	t.Parallel()
	for name, ts := range map[string][]transport.Transport{"memory": overMemory(2), "shared": sharing(t, 2)} {
		errs := cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
			exit := collective.NewOp("exit", true, func(_, _, _ []int64) { runtime.Goexit() })
			v := make([]int64, 2)
			first := collective.IAllReduce(ctx, c, v[:1], v[:1], exit)
			second := collective.IAllReduce(ctx, c, v[1:], v[1:], exit)
			if first.Wait(ctx) == nil || second.Wait(ctx) == nil {
				return errors.New("a call without a result has ended well")
			}
			return nil
		}, cluster.Over(ts), cluster.MayFail())
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// overMemory returns the transports of n ranks in memory.
func overMemory(n int) []transport.Transport {
	var ts []transport.Transport
	for _, e := range mem.New(n) {
		ts = append(ts, e)
	}
	return ts
}

// The end of a context does not affect calls with another context, once all calls with the ended
// context have ended.
func TestContextOfEndedCallInMemory(t *testing.T) {
	t.Parallel()
	canceled := make(chan struct{})
	overShared(t, 2, func(ctx context.Context, c *collective.Comm) error {
		v := make([]int64, 2)
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		first := collective.IAllReduce(short, c, v[:1], v[:1], collective.Sum[int64])
		if c.Rank() == 1 {
			<-canceled // the second call of rank 0 waits until then
		}
		second := collective.IAllReduce(ctx, c, v[1:], v[1:], collective.Sum[int64])
		if err := first.Wait(ctx); err != nil {
			return err
		}
		cancel()
		if c.Rank() == 0 {
			close(canceled)
		}
		return second.Wait(ctx)
	})
}

// A non-blocking call with a nil context fails after the calls before it.
func TestOutstandingWithoutContext(t *testing.T) {
	t.Parallel()
	errs := cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		v := make([]int64, 2)
		first := collective.IAllReduce(ctx, c, v[:1], v[:1], collective.Sum[int64])
		var none context.Context
		second := collective.IAllReduce(none, c, v[1:], v[1:], collective.Sum[int64])
		return errors.Join(first.Wait(ctx), second.Wait(ctx))
	}, cluster.Over(sharing(t, 2)), cluster.MayFail())
	for rank, err := range errs {
		if !errors.Is(err, collective.ErrArgument) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// signalCounter is a transport that counts the signals of a rank.
type signalCounter struct {
	*mem.Transport
	signals *atomic.Int32
}

func (s signalCounter) Signal(to int, msg []byte) {
	s.signals.Add(1)
	s.Transport.Signal(to, msg)
}

// However many calls wait behind a blocked call, the ranks ask only about the blocked call.
func TestAsksOfOutstanding(t *testing.T) {
	t.Parallel()
	var signals atomic.Int32
	var ts []signalCounter
	all, err := mem.NewShared(2)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range all {
		ts = append(ts, signalCounter{end, &signals})
	}
	held := make(chan collective.Stall, 1)
	o := collective.Options{OnStall: func(s collective.Stall) {
		select {
		case held <- s:
		default:
		}
	}}
	cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		if c.Rank() == 1 {
			if s := <-held; s.For != "call 0" || len(s.Culprits) != 1 || s.Culprits[0] != 1 {
				t.Errorf("%+v", s)
			}
		}
		v := make([]int64, manyCalls)
		var handles []*collective.Handle
		for i := range v {
			d := c.With(collective.CallOptions{For: fmt.Sprint("call ", i)})
			handles = append(handles, collective.IAllReduce(ctx, d, v[i:i+1], v[i:i+1], collective.Sum[int64]))
		}
		for _, h := range handles {
			if err := h.Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	}, cluster.Over(ts), cluster.WithOptions(o))
	if n := signals.Load(); n > manyCalls/2 {
		t.Errorf("%d signals for one call that is held up", n)
	}
}
