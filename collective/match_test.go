package collective_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/testing/cluster"
)

// Rank 0 receives messages of any length from any rank, with Probe and with IRecv, everywhere.
func TestProbeAndReceiveAny(t *testing.T) {
	t.Parallel()
	const n, each = 4, 12
	for where, connect := range everywhere(t, n) {
		errs := cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
			if c.Rank() == 0 {
				return receiveAll(ctx, c, (n-1)*each)
			}
			for i := range each {
				v := make([]int64, 1+(7*i+c.Rank())%40)
				for k := range v {
					v[k] = int64(c.Rank()*1000 + i)
				}
				if err := collective.Send(ctx, c, 0, i%3, v); err != nil {
					return err
				}
			}
			return nil
		}, cluster.Over(connect()), cluster.WithOptions(collective.Options{Segment: 64}), cluster.MayFail())
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// receiveAll receives a number of messages, each with the number of its sender's message in all
// elements. The messages of one sender and tag must come in order.
func receiveAll(ctx context.Context, c *collective.Comm, messages int) error {
	next := make(map[[2]int]int) // of each sender and tag
	for range messages {
		m, err := collective.Probe(ctx, c, collective.AnySource, collective.AnyTag)
		if err != nil {
			return err
		}
		v := make([]int64, m.Len)
		if err := collective.Recv(ctx, c, m.From, m.Tag, v); err != nil {
			return err
		}
		i := 3*next[[2]int{m.From, m.Tag}] + m.Tag
		next[[2]int{m.From, m.Tag}]++
		if m.Type != dtype.Int64 || m.Len != 1+(7*i+m.From)%40 {
			return fmt.Errorf("message %d: %+v", i, m)
		}
		for _, got := range v {
			if got != int64(m.From*1000+i) {
				return fmt.Errorf("message %d of rank %d: got %d", i, m.From, got)
			}
		}
	}
	return nil
}

// A message goes to the oldest receive that asks for it, as in MPI, whether the receives were posted
// before the messages came or later.
func TestOldestReceiveGetsTheMessage(t *testing.T) {
	for _, early := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
				if early == (c.Rank() > 0) {
					after(time.Second)
				}
				if c.Rank() == 0 {
					return oldestFirst(ctx, c)
				}
				for i := range 3 {
					if err := collective.Send(ctx, c, 0, 5, []int32{int32(10*c.Rank() + i)}); err != nil {
						return err
					}
					after(time.Duration(c.Rank()) * time.Second)
				}
				return nil
			})
		})
	}
}

// oldestFirst receives three messages of tag 5 of rank 1 and three of rank 2.
func oldestFirst(ctx context.Context, c *collective.Comm) error {
	froms := []int{1, collective.AnySource, 1, collective.AnySource, 2, collective.AnySource}
	got := make([][]int32, len(froms))
	var handles []*collective.Handle
	for i, from := range froms {
		got[i] = make([]int32, 1)
		tag := 5
		if i == 3 {
			tag = collective.AnyTag
		}
		handles = append(handles, collective.IRecv(ctx, c, from, tag, got[i]))
	}
	if err := collective.WaitAll(ctx, handles...); err != nil {
		return err
	}
	next := map[int]int32{1: 10, 2: 20}
	for i, h := range handles {
		m := h.Message()
		if froms[i] != collective.AnySource && m.From != froms[i] || m.Tag != 5 || m.Len != 1 {
			return fmt.Errorf("receive %d from %d: %+v", i, froms[i], m)
		}
		if got[i][0] != next[m.From] {
			return fmt.Errorf("receive %d: got message %d of rank %d, want %d", i, got[i][0], m.From, next[m.From])
		}
		next[m.From]++
	}
	return nil
}
