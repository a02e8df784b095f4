package ring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// errInjected is the error of a faulty link.
var errInjected = errors.New("injected")

// faulty is a Link whose Send or Recv fails at the call with the given index, counted from 0. An
// index of -1 means that no call fails.
type faulty struct {
	Link
	send, recv int // index of the failing call
	sent, got  int // number of calls so far
}

func (f *faulty) Send(ctx context.Context, buf []byte) error {
	f.sent++
	if f.sent-1 == f.send {
		return errInjected
	}
	return f.Link.Send(ctx, buf)
}

func (f *faulty) Recv(ctx context.Context, buf []byte) error {
	f.got++
	if f.got-1 == f.recv {
		return errInjected
	}
	return f.Link.Recv(ctx, buf)
}

// After a link error at any rank and any message, that rank returns the error, and each other rank returns an error or the
// right result. The synctest bubble shows that no rank hangs, as a hang would be a deadlock of the bubble, and that no sender
// remains, as the bubble waits for all goroutines.
func TestLinkErrors(t *testing.T) {
	for _, depth := range []int{0, 2} {
		for size := 2; size <= 4; size++ {
			messages := 2 * (size - 1) * 2 // each chunk has two segments
			for rank := range size {
				for k := range 2 * messages {
					f := &faulty{send: k, recv: -1}
					if k >= messages {
						f = &faulty{send: -1, recv: k - messages}
					}
					synctest.Test(t, func(t *testing.T) { testLinkError(t, f, size, depth, rank) })
				}
			}
		}
	}
}

// testLinkError runs an all-reduce in which the given rank has the faulty link.
func testLinkError(t *testing.T, f *faulty, size, depth, rank int) {
	rings := newRings(size, depth, 12)
	f.Link = rings[rank].Link
	rings[rank].Link = f
	all := inputs[int32](size, 6*size)
	want := reduced(all, Sum[int32]())
	errs := everyRank(rings, func(ctx context.Context, r Ring) error {
		dst := make([]int32, 6*size)
		err := AllReduce(ctx, r, dst, all[r.Rank], Sum[int32]())
		if err == nil && !same(dst, want) {
			t.Errorf("rank %d: no error and a wrong result", r.Rank)
		}
		return err
	})
	if !errors.Is(errs[rank], errInjected) {
		t.Errorf("%d ranks, %+v: rank %d returns %v", size, f, rank, errs[rank])
	}
	for i, err := range errs {
		// If the link fails at the first message, no rank can finish, because every rank still needs data of the failed rank.
		if first := f.send == 0 || f.recv == 0; first && err == nil {
			t.Errorf("%d ranks, %+v at rank %d: rank %d returns nil", size, f, rank, i)
		}
	}
}

// The calls other than AllReduce return an error, too, after a link error in the middle of the
// call.
func TestLinkErrorOfOtherCalls(t *testing.T) {
	bounds := []int{0, 6, 12, 18}
	for name, call := range map[string]func(ctx context.Context, r Ring) error{
		"reducescatter": func(ctx context.Context, r Ring) error {
			return ReduceScatter(ctx, r, make([]int32, 6), make([]int32, 18), bounds, Sum[int32]())
		},
		"allgather": func(ctx context.Context, r Ring) error {
			return AllGather(ctx, r, make([]int32, 18), bounds)
		},
		"broadcast": func(ctx context.Context, r Ring) error {
			return Broadcast(ctx, r, make([]int32, 18), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rings := newRings(3, 0, 8)
				rings[1].Link = &faulty{Link: rings[1].Link, send: 1, recv: -1}
				errs := everyRank(rings, call)
				if !errors.Is(errs[1], errInjected) || errs[2] == nil {
					t.Errorf("errors %v", errs)
				}
			})
		})
	}
}

// A cancelled context ends the call at every waiting rank.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		rings := newRings(4, 1, 8)
		errs := make([]error, len(rings))
		var ranks sync.WaitGroup
		for i, r := range rings[1:] { // rank 0 does not take part
			ranks.Go(func() {
				v := input[float32](i, 100)
				errs[i+1] = AllReduce(ctx, r, v, v, Sum[float32]())
			})
		}
		synctest.Wait()
		cancel(errInjected)
		ranks.Wait()
		for i, err := range errs[1:] {
			if !errors.Is(err, errInjected) {
				t.Errorf("rank %d returns %v", i+1, err)
			}
		}
	})
}

// halfOpen is a Link whose Send blocks until ctx is done, and whose Recv fails while Send blocks.
type halfOpen struct{}

func (halfOpen) Send(ctx context.Context, buf []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

func (halfOpen) Recv(ctx context.Context, buf []byte) error {
	synctest.Wait()
	return errInjected
}

// An error of the receiver interrupts a sender that blocks in its link. The call returns the receiver's error, not the later
// error of the sender.
func TestFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Ring{Link: halfOpen{}, Rank: 0, Size: 2, Segment: 8}
		v := make([]int32, 10)
		err := AllReduce(t.Context(), r, v, v, Sum[int32]())
		if want := "ring: receive chunk 1 at hop 0: injected"; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	})
}

// If a reduction panics, the sender ends too.
func TestFoldPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := NewOp("bad", true, func(dst, a, b []int32) { panic("fold") })()
		errs := everyRank(newRings(3, 0, 8), func(ctx context.Context, r Ring) (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v", p)
				}
			}()
			v := make([]int32, 100)
			return AllReduce(ctx, r, v, v, bad)
		})
		for i, err := range errs {
			if err == nil {
				t.Errorf("rank %d returns nil", i)
			}
		}
	})
}

// lazy is a Link whose Send returns only when the test allows it. Until then Send still reads its buffer, even if the neighbour
// already has the message.
type lazy struct {
	Link
	hold  chan struct{}
	early atomic.Bool // a buffer has changed before its Send returned
}

func (l *lazy) Send(ctx context.Context, buf []byte) error {
	before := append([]byte(nil), buf...)
	if err := l.Link.Send(ctx, buf); err != nil {
		return err
	}
	<-l.hold
	if !same(before, buf) {
		l.early.Store(true)
	}
	return nil
}

// A rank does not overwrite memory that a pending Send may still read, even if data that depends on this Send has already come
// back around the ring.
func TestSendBufferIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, n = 3, 9
		rings := newRings(size, 1, 4)
		links := make([]*lazy, size)
		for i := range rings {
			links[i] = &lazy{Link: rings[i].Link, hold: make(chan struct{})}
			rings[i].Link = links[i]
		}
		var test sync.WaitGroup
		test.Go(func() { // lets one Send return whenever all other goroutines wait
			for range 2 * 2 * (size - 1) * n / size {
				for _, l := range links {
					synctest.Wait()
					l.hold <- struct{}{}
				}
			}
		})
		all := inputs[int32](size, n)
		testAllReduce(t, rings, all, Sum[int32]())
		test.Wait()
		for i, l := range links {
			if l.early.Load() {
				t.Errorf("rank %d wrote a buffer before its Send returned", i)
			}
		}
	})
}
