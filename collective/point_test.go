package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// Messages of one tag arrive in the order of the Sends; the receiver may receive tags in
// any order.
func TestSendOrder(t *testing.T) {
	const tags, each = 5, 40
	cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		if c.Rank() == 0 {
			for i := range tags * each {
				if err := collective.Send(ctx, c, 1, i%tags, []int32{int32(i)}); err != nil {
					return err
				}
			}
			return nil
		}
		for tag := tags - 1; tag >= 0; tag-- {
			for i := tag; i < tags*each; i += tags {
				got := make([]int32, 1)
				if err := collective.Recv(ctx, c, 0, tag, got); err != nil || got[0] != int32(i) {
					return fmt.Errorf("tag %d: got %d, want %d: %w", tag, got[0], i, orMissing(err))
				}
			}
		}
		return nil
	})
}

// Messages with the smallest and the largest tag wait while the same ranks make collective
// calls.
func TestSendAmongCollectives(t *testing.T) {
	tags := []int{0, 1, 2, 3, collective.MaxTag - 1, collective.MaxTag}
	cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
		right, left := (c.Rank()+1)%3, (c.Rank()+2)%3
		for _, tag := range tags {
			if err := collective.Send(ctx, c, right, tag, []int64{int64(c.Rank() + tag)}); err != nil {
				return err
			}
		}
		for range tags {
			if err := collective.Barrier(ctx, c); err != nil {
				return err
			}
		}
		for _, tag := range tags {
			got := make([]int64, 1)
			if err := collective.Recv(ctx, c, left, tag, got); err != nil {
				return err
			}
			if got[0] != int64(left+tag) {
				return fmt.Errorf("tag %d: got %d", tag, got[0])
			}
		}
		return nil
	})
}

// Each rank sends more data than any buffer holds to every rank, itself included.
func TestSendLargeBothWays(t *testing.T) {
	const n, length = 3, 1 << 20
	cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
		src := make([]int64, length)
		for i := range src {
			src[i] = int64(c.Rank()<<32 + i)
		}
		var handles []*collective.Handle
		dst := make([][]int64, n)
		for peer := range n {
			dst[peer] = make([]int64, length)
			handles = append(handles, collective.ISend(ctx, c, peer, 1, src), collective.IRecv(ctx, c, peer, 1, dst[peer]))
		}
		for _, h := range handles {
			if err := h.Wait(ctx); err != nil {
				return err
			}
		}
		for peer, v := range dst {
			for i := range v {
				if v[i] != int64(peer<<32+i) {
					return fmt.Errorf("from %d: element %d is %d", peer, i, v[i])
				}
			}
		}
		return nil
	})
}

// A Recv with another length or type than its Send fails, and so does the sender's next
// call.
func TestMismatchOfMessages(t *testing.T) {
	receives := map[string]func(ctx context.Context, c *collective.Comm) error{
		"longer": func(ctx context.Context, c *collective.Comm) error {
			return collective.Recv(ctx, c, 0, 1, make([]int32, 5))
		},
		"shorter": func(ctx context.Context, c *collective.Comm) error {
			return collective.Recv(ctx, c, 0, 1, make([]int32, 3))
		},
		"none": func(ctx context.Context, c *collective.Comm) error { return collective.Recv(ctx, c, 0, 1, []int32{}) },
		"type": func(ctx context.Context, c *collective.Comm) error {
			return collective.Recv(ctx, c, 0, 1, make([]uint32, 4))
		},
	}
	for name, receive := range receives {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errs := cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
					if c.Rank() == 1 {
						return receive(ctx, c)
					}
					if err := collective.Send(ctx, c, 1, 1, make([]int32, 4)); err != nil {
						return err
					}
					return collective.Barrier(ctx, c)
				}, cluster.MayFail())
				for rank, err := range errs {
					if !errors.Is(err, collective.ErrMismatch) {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			})
		})
	}
}

// If a message is slow, the waiting Recv is no mismatch, although the sender of the message already
// waits in its next call.
func TestRecvOfSlowISend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newSlowNetwork(2)
		cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
			if c.Rank() == 0 {
				h := collective.ISend(ctx, c, 1, 1, make([]int8, 10)) // a slow message
				return errors.Join(collective.Barrier(ctx, c), h.Wait(ctx))
			}
			return errors.Join(collective.Recv(ctx, c, 0, 1, make([]int8, 10)), collective.Barrier(ctx, c))
		}, cluster.Over(slow.transports()))
	})
}

// Messages of one tag that are longer than a segment stay whole and in order, even if
// several are sent and received at once.
func TestOutstandingMessages(t *testing.T) {
	t.Parallel()
	const messages, length = 8, 300
	for where, connect := range everywhere(t, 3) {
		errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			right, left := (c.Rank()+1)%3, (c.Rank()+2)%3
			var handles []*collective.Handle
			got := make([][]int64, messages)
			for i := range got {
				src := make([]int64, length)
				for k := range src {
					src[k] = int64(i*length + k)
				}
				got[i] = make([]int64, length)
				handles = append(handles, collective.ISend(ctx, c.With(collective.CallOptions{For: "send"}), right, 3, src), collective.IRecv(ctx, c, left, 3, got[i]))
			}
			for _, h := range handles {
				if err := h.Wait(ctx); err != nil {
					return err
				}
			}
			for i, v := range slices.Concat(got...) {
				if v != int64(i) {
					return fmt.Errorf("message %d: element %d is %d", i/length, i%length, v)
				}
			}
			return nil
		}, cluster.Over(connect()), cluster.WithOptions(collective.Options{Segment: 64}), cluster.MayFail())
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}
