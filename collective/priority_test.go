package collective_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
)

// slowLinks returns options of a slow network, on which an interruptible call uses the
// smallest pieces, slowPiece bytes.
func slowLinks() collective.Options {
	return collective.Options{Cost: collective.Cost{Alpha: 1e-3, Beta: 1e-6}}
}

const slowPiece = 16 << 10

// withPriority returns c with or without a priority, depending on i. Calls with a priority are also
// interruptible.
func withPriority(c *collective.Comm, i int) *collective.Comm {
	if i%3 == 0 {
		return c
	}
	return c.With(collective.CallOptions{Priority: int32(i%5 - 2), Interruptible: true})
}

// Calls with and without priorities have the right results, also while other calls are in progress.
func TestPriority(t *testing.T) {
	for _, ts := range [][]transport.Transport{messages(1), messages(2), messages(3), messages(5), sharing(t, 3), sharing(t, 2, 1)} {
		n, s := len(ts), typed[int64]{integers[int64]()}
		const long = 5000 // in several pieces
		jobs := []job{
			{s.prepare(moving, n, n*long), calls(ways(carrying(), false), n, []int{1, long})},
			{s.prepare("sum", n, long), calls(ways(reducing(), false), n, []int{1, long})},
		}
		cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
			return errors.Join(c.Calibrate(ctx), besideOthers(ctx, c, jobs[0]), besideOthers(ctx, c, jobs[1]))
		}, cluster.Over(ts), cluster.WithOptions(slowLinks()))
	}
}

// besideOthers carries out the calls of a job, each while another call is in progress.
func besideOthers(ctx context.Context, c *collective.Comm, j job) error {
	n := int64(c.Size())
	for i, k := range j.calls {
		sums := []int64{int64(i), 1}
		h := collective.IAllReduce(ctx, withPriority(c, i+1), sums, sums, collective.Sum[int64])
		if err := errors.Join(j.load.run(ctx, withPriority(c, i), k), h.Wait(ctx)); err != nil {
			return err
		}
		if sums[0] != n*int64(i) || sums[1] != n {
			return fmt.Errorf("next to %+v: %d ranks sum up to %v", k, n, sums)
		}
	}
	return nil
}

// sharingTransport is a transport with a hook that gets each message.
type sharingTransport struct {
	transport.Transport
	look func(e transport.Envelope, bytes int)
}

func (t sharingTransport) Shared() *transport.Shared {
	if s, ok := t.Transport.(transport.Sharer); ok {
		return s.Shared()
	}
	return nil
}

func (s sharingTransport) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	s.look(e, len(buf))
	return s.Transport.Send(ctx, to, e, buf)
}

// The transport gets the priority of each message, and each message is as short as its call
// requires. In this test the length of a call encodes its priority.
func TestPriorityOfMessages(t *testing.T) {
	const n, none = 3, 50_000 // elements of a call without a priority
	var full atomic.Int64
	look := func(e transport.Envelope, bytes int) {
		if e.Call.Kind == transport.KindAllGather {
			return // of Calibrate
		}
		want, segment := int32(e.Call.Count)-none, slowPiece
		if want == 0 {
			segment = 256 << 10
		}
		if e.Priority != want || int(e.Call.Segment) != segment || bytes > segment {
			t.Errorf("%v: %d bytes of priority %d in pieces of %d, want priority %d and %d", e.Call, bytes, e.Priority, e.Call.Segment, want, segment)
		}
		if bytes == slowPiece {
			full.Add(1)
		}
	}
	for _, group := range [][]transport.Transport{messages(n), sharing(t, n-1, 1)} {
		var ts []transport.Transport
		for _, e := range group {
			ts = append(ts, sharingTransport{e, look})
		}
		full.Store(0)
		cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
			if err := c.Calibrate(ctx); err != nil {
				return err
			}
			for _, priority := range []int32{0, 7, -1} {
				on := c
				if priority != 0 {
					on = c.With(collective.CallOptions{Priority: 3}).With(collective.CallOptions{Priority: priority, Interruptible: true}).With(collective.CallOptions{For: "a test"})
				}
				if err := everyWayToSend(ctx, on, make([]int64, none+priority)); err != nil {
					return err
				}
			}
			return nil
		}, cluster.Over(ts), cluster.WithOptions(slowLinks()))
		if full.Load() == 0 {
			t.Error("no vector was sent in pieces")
		}
	}
}

// everyWayToSend makes calls that send v in different ways.
func everyWayToSend(ctx context.Context, c *collective.Comm, v []int64) error {
	var errs []error
	for _, a := range []collective.Algorithm{collective.Auto, collective.Ring, collective.Tree, collective.RecursiveDoubling, collective.Rabenseifner} {
		errs = append(errs, collective.AllReduce(ctx, c.With(collective.CallOptions{Algorithm: a}), v, v, collective.Sum[int64]))
	}
	for _, a := range []collective.Algorithm{collective.Ring, collective.Tree} {
		errs = append(errs, collective.Broadcast(ctx, c.With(collective.CallOptions{Algorithm: a}), v, 1))
	}
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	sent := collective.ISend(ctx, c, next, 1, v)
	errs = append(errs, collective.Recv(ctx, c, before, 1, make([]int64, len(v))), sent.Wait(ctx))
	return errors.Join(errs...)
}

// If a call is interruptible at only one rank, that rank uses shorter segments on a slow network
// than the other ranks, and all ranks get a mismatch.
func TestMismatchOfSegments(t *testing.T) {
	for _, kind := range kinds() {
		common := callOf(kind, usual())
		other := act{kind, func(ctx context.Context, c *collective.Comm) error {
			return common.do(ctx, c.With(collective.CallOptions{Interruptible: true}))
		}}
		positions(func(n, deviant int) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				errs := cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
					return oneOf(ctx, c, deviant, common, other)
				}, cluster.Over(messages(n)), cluster.WithOptions(slowLinks()), cluster.MayFail())
				for rank, err := range errs {
					checkMismatch(t, fmt.Sprintf("n=%d, rank %d is interruptible in %s: rank %d", n, deviant, kind, rank), err, kind, kind)
				}
				if took := time.Since(begin); took > time.Second {
					t.Errorf("n=%d, rank %d is interruptible in %s: it took %v", n, deviant, kind, took)
				}
			})
		})
	}
}
