package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
)

// levelPieces returns options with which vectors are reduced between groups in pieces of four
// pages. Calibrate keeps their Cost.
func levelPieces() collective.Options {
	o := slowLinks()
	o.Segment = 4 << 10
	return o
}

// AllReduce between hosts is right for vectors with more pieces than the in-flight window, in place
// and not. Leaders send ordinary slices to the other ranks of their host. The other ranks read
// shared slices directly, except the incomplete pages at the ends.
func TestLongOfHosts(t *testing.T) {
	t.Parallel()
	const most = 60_001
	cluster.Run(t, 5, func(ctx context.Context, c *collective.Comm) error {
		if err := c.Calibrate(ctx); err != nil {
			return err
		}
		if a, err := c.Choice(transport.KindAllReduce, most, true); err != nil || a != collective.TwoLevel {
			return fmt.Errorf("it is done by %v (%v)", a, err)
		}
		for k, where := range []func(rank int) bool{
			func(int) bool { return false }, func(int) bool { return true }, func(rank int) bool { return rank == 2 },
		} {
			dst, src, err := allocated(c, most, where(c.Rank()))
			if err != nil {
				return err
			}
			for _, first := range []int{0, 3, 700} {
				for _, length := range []int{0, 1, 1024, 1025, 2048, 2049, 5000, most - first} {
					v, w := dst[first:first+length], src[first:first+length]
					if err := errors.Join(average(ctx, c, v, w), average(ctx, c, w, w)); err != nil {
						return fmt.Errorf("place %d, length %d from %d on: %w", k, length, first, err)
					}
				}
			}
			if err := errors.Join(collective.Free(c, dst), collective.Free(c, src)); err != nil {
				return err
			}
		}
		return nil
	}, cluster.Over(sharing(t, 2, 3)), cluster.WithOptions(levelPieces()))
}

// average averages vectors of five ranks and checks the result.
func average(ctx context.Context, c *collective.Comm, dst, src []int64) error {
	for i := range src {
		src[i] = int64(5*i + c.Rank())
	}
	if err := collective.AllReduce(ctx, c, dst, src, collective.Average[int64]); err != nil {
		return err
	}
	for i, got := range dst {
		if want := int64(5*i + 2); got != want {
			return fmt.Errorf("element %d: %d, want %d", i, got, want)
		}
	}
	return nil
}

// hookedTransport is a transport with hooks for sending and receiving.
type hookedTransport struct {
	sharingTransport
	send func(to int, e transport.Envelope) error
	recv func(e transport.Envelope, buf []byte)
}

func (h hookedTransport) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	if err := h.send(to, e); err != nil {
		return err
	}
	return h.Transport.Send(ctx, to, e, buf)
}

func (h hookedTransport) Recv(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
	err := h.Transport.Recv(ctx, from, e, buf)
	h.recv(e, buf)
	return err
}

// watch adds hooks to the transports. Each hook also gets the rank of its transport.
func watch(ts []transport.Transport, send func(rank, to int, e transport.Envelope) error, recv func(rank int, e transport.Envelope, buf []byte)) []transport.Transport {
	all := slices.Clone(ts)
	for rank, e := range all {
		all[rank] = hookedTransport{sharingTransport{Transport: e}, func(to int, e transport.Envelope) error { return send(rank, to, e) },
			func(e transport.Envelope, buf []byte) { recv(rank, e, buf) }}
	}
	return all
}

func ignore(int, transport.Envelope, []byte) {}

// A call whose messages between hosts are delayed does not block later calls: the later calls end
// first.
func TestOvertakingOfHosts(t *testing.T) {
	t.Parallel()
	const slow, fast = 3000, 2000 // elements of the calls
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	ts := watch(sharing(t, 2, 2), func(rank, to int, e transport.Envelope) error {
		if e.Call.Count == slow && rank/2 != to/2 {
			<-goOn
		}
		return nil
	}, ignore)
	var ended atomic.Int32
	cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
		ctx, cancel := context.WithTimeout(ctx, hang)
		defer cancel()
		if err := c.Calibrate(ctx); err != nil {
			return err
		}
		defer context.AfterFunc(ctx, release)() // otherwise the transport would wait for ever
		first, then := ones(slow), ones(fast)
		h := collective.IAllReduce(ctx, c, first, first, collective.Sum[int64])
		for range 3 {
			if err := collective.AllReduce(ctx, c, then, then, collective.Average[int64]); err != nil {
				return err
			}
		}
		if ended.Add(1) == 4 {
			release()
		}
		if err := h.Wait(ctx); err != nil {
			return err
		}
		if i := slices.IndexFunc(first, func(x int64) bool { return x != 4 }); i >= 0 {
			return fmt.Errorf("element %d: %d", i, first[i])
		}
		return nil
	}, cluster.Over(ts), cluster.WithOptions(slowLinks()))
}

// Calls of any lengths and priorities that are in progress at the same time do not disturb
// each other, and a rank may wait for them in any order.
func TestManyOfHosts(t *testing.T) {
	t.Parallel()
	const calls = 24
	cluster.Run(t, 6, func(ctx context.Context, c *collective.Comm) error {
		if err := c.Calibrate(ctx); err != nil {
			return err
		}
		all, _, err := allocated(c, calls*6000, true)
		if err != nil {
			return err
		}
		var handles [calls]*collective.Handle
		var vectors [calls][]int64
		for i := range calls {
			v := all[6000*i:][:1+(i*i*977)%6000]
			if i%4 == 3 {
				v = make([]int64, len(v))
			}
			copy(v, slices.Repeat([]int64{int64(i + c.Rank())}, len(v)))
			vectors[i], handles[i] = v, collective.IAllReduce(ctx, withPriority(c, i), v, v, collective.Sum[int64])
		}
		for k := range calls {
			i := (k*5 + 7*c.Rank()) % calls
			if err := handles[i].Wait(ctx); err != nil {
				return err
			}
			want := int64(6*i + 15)
			if at := slices.IndexFunc(vectors[i], func(x int64) bool { return x != want }); at >= 0 {
				return fmt.Errorf("call %d, element %d: %d, want %d", i, at, vectors[i][at], want)
			}
		}
		return collective.Free(c, all)
	}, cluster.Over(sharing(t, 2, 1, 3)), cluster.WithOptions(levelPieces()))
}

func ones(n int) []int64 { return slices.Repeat([]int64{1}, n) }

// Whichever message cannot be sent, all ranks return an error or the right result.
func TestFaultsOfHosts(t *testing.T) {
	t.Parallel()
	const ranks, length = 4, 40_000 // more pieces than can be in flight
	step := 1
	if racing {
		step = 9
	}
	for deviant := range ranks {
		for k, failed := 0, true; failed; k += step {
			var sent atomic.Int32
			ts := watch(sharing(t, 2, 2), func(rank, _ int, _ transport.Envelope) error {
				if rank == deviant && int(sent.Add(1)) == k+1 {
					return errInjected
				}
				return nil
			}, ignore)
			errs := cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
				return errors.Join(c.Calibrate(ctx), summed(ctx, c, length))
			}, cluster.Over(ts), cluster.WithOptions(levelPieces()), cluster.MayFail())
			for rank, err := range errs {
				if err != nil && !errors.Is(err, collective.ErrRevoked) {
					t.Errorf("message %d of rank %d fails: rank %d: %v", k, deviant, rank, err)
				}
			}
			failed = int(sent.Load()) > k
			if failed && errs[deviant] == nil {
				t.Errorf("message %d of rank %d fails, and it does not tell", k, deviant)
			}
		}
	}
}

var errInjected = errors.New("injected")

// summed sums vectors in shared memory and in ordinary memory.
func summed(ctx context.Context, c *collective.Comm, length int) error {
	dst, src, err := allocated(c, length, true)
	if err != nil {
		return err
	}
	copy(src, ones(length))
	own := ones(length)
	err = errors.Join(collective.AllReduce(ctx, c, dst, src, collective.Sum[int64]), collective.AllReduce(ctx, c, own, own, collective.Sum[int64]))
	for i := range dst {
		if err == nil && (dst[i] != int64(c.Size()) || own[i] != dst[i]) {
			err = fmt.Errorf("element %d: %d and %d", i, dst[i], own[i])
		}
	}
	return errors.Join(err, collective.Free(c, dst), collective.Free(c, src))
}

// A rank that reads the result late, after the call has failed at the leader of its host,
// does not see later contents of the leader's dst.
func TestLateReaderOfHosts(t *testing.T) {
	t.Parallel()
	const length, leader, late = 3000, 0, 1
	told, goOn := make(chan struct{}), make(chan struct{})
	wait := sync.OnceFunc(func() {
		close(told)
		<-goOn
	})
	ts := watch(sharing(t, 2, 1), func(int, int, transport.Envelope) error { return nil }, func(rank int, e transport.Envelope, buf []byte) {
		if rank == late && e.Call.Algorithm == collective.TwoLevel && len(buf) == 8 { // the message with the position to read from
			wait()
		}
	})
	release := sync.OnceFunc(func() { close(goOn) })
	cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
		if err := c.Calibrate(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		dst, src, err := allocated(c, length, true)
		if err != nil {
			return err
		}
		shared := collective.IsShared(c, dst)
		copy(src, ones(length))
		if c.Rank() == leader {
			defer release()
			go func() {
				<-told
				cancel()
			}()
		}
		err = collective.AllReduce(ctx, c, dst, src, collective.Sum[int64])
		switch c.Rank() {
		case leader:
			if !shared { // without shared memory the result is sent and not read
				return nil
			}
			if !errors.Is(err, context.Canceled) || collective.IsShared(c, dst) || !collective.IsShared(c, src) {
				return fmt.Errorf("dst is shared: %t, src: %t: %w", collective.IsShared(c, dst), collective.IsShared(c, src), err)
			}
			copy(dst, slices.Repeat([]int64{-1}, length))
		case late:
			if i := slices.Index(dst, -1); i >= 0 {
				return fmt.Errorf("element %d is what the leader has there now", i)
			}
		}
		return errors.Join(collective.Free(c, dst), collective.Free(c, src))
	}, cluster.Over(ts), cluster.WithOptions(slowLinks()))
}

// If one rank, a leader or not, is not in a call, the other ranks report that rank. This includes
// ranks that wait in the shared memory of their host for a rank that waits for the absent rank.
func TestStallOfHosts(t *testing.T) {
	t.Parallel()
	const ranks = 4
	for deviant := range ranks {
		stalled := make(chan collective.Stall, 100)
		o := slowLinks()
		o.OnStall = func(s collective.Stall) { stalled <- s }
		errs := cluster.Run(t, 4, func(ctx context.Context, c *collective.Comm) error {
			if err := c.Calibrate(ctx); err != nil {
				return err
			}
			v := make([]int64, 3000)
			for range 20 {
				if err := collective.AllReduce(ctx, c, v, v, collective.Min[int64]); err != nil {
					return err
				}
			}
			for c.Rank() == deviant {
				s := <-stalled
				if !slices.Equal(s.Culprits, []int{deviant}) {
					t.Errorf("rank %d is not in a call: %v", deviant, s)
				}
				if s.Call.Algorithm == collective.TwoLevel {
					break
				}
			}
			return collective.AllReduce(ctx, c, v, v, collective.Min[int64])
		}, cluster.Over(sharing(t, 2, 2)), cluster.WithOptions(o), cluster.MayFail())
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
}
