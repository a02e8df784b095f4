package collective_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
)

// beyondBuffers is the length in bytes of a message that Send cannot leave in the receiver's mailbox.
const beyondBuffers = 9 << 20

// deadlock is a program in which some ranks, the ring, wait for each other for ever.
type deadlock struct {
	name string
	n    int
	ring []int
	do   func(ctx context.Context, c *collective.Comm) error
}

// deadlocks returns deadlocks of calls on one communicator and on several.
func deadlocks() []deadlock {
	type comm = *collective.Comm
	sendTo := func(to func(rank, n int) int) func(ctx context.Context, c comm) error {
		return func(ctx context.Context, c comm) error {
			return collective.Send(ctx, c, to(c.Rank(), c.Size()), 3, make([]uint8, beyondBuffers))
		}
	}
	next := func(rank, n int) int { return (rank + 1) % n }
	return []deadlock{
		{"dup, two ranks", 2, []int{0, 1}, func(ctx context.Context, c comm) error { return crossed(ctx, c, c.Rank() == 1) }},
		{"dup, the odd ranks", 4, nil, func(ctx context.Context, c comm) error { return crossed(ctx, c, c.Rank()%2 == 1) }},
		{"dup, the last rank", 5, nil, func(ctx context.Context, c comm) error { return crossed(ctx, c, c.Rank() == 4) }},
		{"send to each other", 2, []int{0, 1}, sendTo(next)},
		{"ring of sends", 4, []int{0, 1, 2, 3}, sendTo(next)},
		{"ring of receives", 3, []int{0, 1, 2}, func(ctx context.Context, c comm) error {
			return collective.Recv(ctx, c, next(c.Rank(), 3), 3, make([]uint8, 1))
		}},
		{"send and receive", 3, []int{0, 1, 2}, func(ctx context.Context, c comm) error {
			if c.Rank() == 1 {
				return collective.Recv(ctx, c, 2, 4, make([]uint8, 1))
			}
			return collective.Send(ctx, c, next(c.Rank(), 3), 3, make([]uint8, beyondBuffers))
		}},
		{"splits", 4, []int{0, 1, 3, 2}, splits},
	}
}

// crossed reduces on a communicator and on a copy of it, in the opposite order where other is set.
func crossed(ctx context.Context, c *collective.Comm, other bool) error {
	d, err := collective.Dup(ctx, c)
	if err != nil {
		return err
	}
	a, b := c, d
	if other {
		a, b = d, c
	}
	v := make([]float64, 1000)
	return errors.Join(collective.AllReduce(ctx, a, v, v, collective.Sum[float64]), collective.AllReduce(ctx, b, v, v, collective.Sum[float64]))
}

// splits lets each of four ranks wait for another one in a communicator of two ranks.
func splits(ctx context.Context, c *collective.Comm) error {
	row, err := collective.Split(ctx, c, c.Rank()/2, 0) // 0 and 1; 2 and 3
	if err != nil {
		return err
	}
	column, err := collective.Split(ctx, c, c.Rank()%2, 0) // 0 and 2; 1 and 3
	if err != nil {
		return err
	}
	first, second := row, column
	if c.Rank() == 1 || c.Rank() == 2 {
		first, second = column, row
	}
	return errors.Join(collective.Barrier(ctx, first), collective.Barrier(ctx, second))
}

// A deadlock ends all calls within seconds, with the ranks and the calls in it.
func TestDeadlock(t *testing.T) {
	for _, d := range deadlocks() {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			errs := cluster.Run(t, d.n, d.do, cluster.MayFail())
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("%s: after %v", d.name, took)
			}
			for _, err := range errs {
				checkDeadlock(t, d, err)
			}
		})
	}
}

func checkDeadlock(t *testing.T, d deadlock, err error) {
	t.Helper()
	var e *collective.DeadlockError
	if !errors.As(err, &e) || !errors.Is(err, collective.ErrMistake) || !errors.Is(err, collective.ErrRevoked) {
		t.Errorf("%s: got %v, want a deadlock", d.name, err)
		return
	}
	var ring []int
	for _, w := range e.Waits {
		ring = append(ring, w.Rank)
	}
	if d.ring != nil && !slices.Equal(ring, d.ring) || len(ring) < 2 {
		t.Errorf("%s: names %v, want %v", d.name, ring, d.ring)
	}
	if text := e.Error(); strings.Contains(text, "on several communicators") != (strings.Contains(d.name, "dup") || d.name == "splits") {
		t.Errorf("%s: %s", d.name, text)
	}
}

// The calls of several goroutines on communicators of their own are no deadlock, although at each
// rank one goroutine waits in a call which a goroutine of the other rank begins late.
func TestGoroutinesAreNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
			d, err := collective.Dup(ctx, c)
			if err != nil {
				return err
			}
			done := make(chan error)
			use := func(c *collective.Comm, late bool) error {
				for range 3 {
					if err := collective.Barrier(ctx, c); err != nil {
						return err
					}
					if late {
						after(time.Minute)
					}
				}
				return nil
			}
			go func() { done <- use(d, c.Rank() == 1) }()
			return errors.Join(use(c, c.Rank() == 0), <-done)
		})
	})
}

// A slow message is no deadlock, however long it takes: here each rank waits for another one in
// Recv, and one of the messages takes a minute.
func TestSlowMessageIsNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSlowNetwork(3)
		g.slow = func(e transport.Envelope) bool { return e.Call.Kind == transport.KindPoint }
		cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			right, left := (c.Rank()+1)%3, (c.Rank()+2)%3
			for range 5 {
				h := collective.ISend(ctx, c, right, 1, make([]int8, 100))
				if err := errors.Join(collective.Recv(ctx, c, left, 1, make([]int8, 100)), h.Wait(ctx)); err != nil {
					return err
				}
			}
			return nil
		}, cluster.Over(g.transports()))
	})
}

// A goroutine that waits in Recv while another one computes is no deadlock, although each rank waits
// for the other and has made no other call. The other goroutine's first call, here an ISend, shows
// for good that there are two.
func TestReceiverBesideComputationIsNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
			other, done := 1-c.Rank(), make(chan error)
			go func() {
				var err error
				for range 3 {
					err = errors.Join(err, collective.Recv(ctx, c, other, 1, make([]int8, 1)))
				}
				done <- err
			}()
			after(3 * time.Second)
			err := collective.ISend(ctx, c, other, 1, make([]int8, 1)).Wait(ctx)
			after(time.Minute)
			for range 2 {
				err = errors.Join(err, collective.Send(ctx, c, other, 1, make([]int8, 1)))
			}
			return errors.Join(err, <-done)
		})
	})
}
