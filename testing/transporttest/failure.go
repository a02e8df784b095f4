package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// failureChecks returns the checks of items 4, 5 and 7 of the contract.
func failureChecks() []check {
	return []check{
		{"4 cancelled Recv", 3, cancelledRecv},
		{"4 cancelled Send", 3, cancelledSend},
		{"4 posted receive ended while nobody waits", 3, endedWhilePosted},
		{"4 deadline", 2, deadline},
		{"4 Recv ended by a revocation elsewhere", 3, remoteRevocation},
		{"4 Send ended by a revocation elsewhere", 3, blockedSendRevoked},
		{"5 causes arrive as they were", 3, causesArrive},
		{"5 a cause of the user's", 3, plainCause},
		{"5 first cause stays", 2, firstCauseStays},
		{"5 many revoke at once", 4, manyRevoke},
		{"5 death of a peer", 4, death},
		{"5 death while sending to it", 3, deathWhileSending},
		{"7 send buffer stays intact", 2, sendBufferIntact},
	}
}

// pending starts a Recv at every rank. No rank sends the message.
func (g *group) pending() []<-chan error {
	var out []<-chan error
	for rank := range g.ts {
		out = append(out, begin(func() error { return g.ts[rank].Recv(g.ctx, (rank+1)%len(g.ts), tag(77), make([]byte, 9)) }))
	}
	return out
}

// flood sends from rank from to rank to, which does not receive, until a send fails, and returns
// the error. It closes started after the first message. No transport buffers all 512 MiB.
func (g *group) flood(ctx context.Context, from, to int, started chan<- struct{}) error {
	buf := pattern(1<<20, from, to, 0)
	for i := range 512 {
		if err := g.ts[from].Send(ctx, to, tag(1), buf); err != nil {
			if !bytes.Equal(buf, pattern(1<<20, from, to, 0)) {
				return fmt.Errorf("the send buffer has changed: %w", err)
			}
			return err
		}
		if i == 0 {
			close(started)
		}
	}
	return errors.New("512 MiB were sent that nobody asked for")
}

// wantAborted checks that all of pending end with an *AbortError of rank from whose cause mentions why.
func wantAborted(from int, why string, pending ...<-chan error) error {
	var errs []error
	for i, done := range pending {
		err := <-done
		var a *transport.AbortError
		if !errors.As(err, &a) || a.Rank != from || !strings.Contains(a.Cause, why) || !errors.Is(err, transport.ErrRevoked) {
			errs = append(errs, fmt.Errorf("call %d got %v, want it revoked by rank %d: %s", i, err, from, why))
		}
	}
	return errors.Join(errs...)
}

// cancelledRecv cancels the ctx of a Recv. The caller gets the error of the ctx, and the other
// ranks get a revocation.
func cancelledRecv(g *group) error {
	ctx, cancel := context.WithCancel(g.ctx)
	others := g.pending()
	done := begin(func() error { return g.ts[0].Recv(ctx, 1, tag(1), make([]byte, 5)) })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("cancelled receive: %v", err)
	}
	return wantAborted(0, "canceled", others...)
}

// cancelledSend cancels the ctx of a Send that may be in the middle of a message.
func cancelledSend(g *group) error {
	ctx, cancel := context.WithCancel(g.ctx)
	others := g.pending()[1:] // without rank 0, which sends
	started := make(chan struct{})
	done := begin(func() error { return g.flood(ctx, 0, 2, started) })
	<-started
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("cancelled send: %v", err)
	}
	return wantAborted(0, "canceled", others...)
}

// endedWhilePosted revokes between Post and Wait, and then posts another receive. Both receives
// fail.
func endedWhilePosted(g *group) error {
	before := g.ts[0].Post(1, tag(1), make([]byte, 5))
	g.ts[2].Revoke(errors.New("enough"))
	if err := before.Wait(g.ctx); err == nil {
		return errors.New("no error of a receive that was posted before")
	}
	after := begin(func() error { return g.ts[0].Post(1, tag(2), make([]byte, 5)).Wait(g.ctx) })
	return wantAborted(2, "enough", after)
}

// deadline ends a Recv by a deadline. Later calls return the revocation.
func deadline(g *group) error {
	ctx, cancel := context.WithTimeout(g.ctx, 10*time.Millisecond)
	defer cancel()
	if err := g.ts[0].Recv(ctx, 1, tag(1), nil); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("got %v", err)
	}
	return wantAborted(0, "deadline", g.pending()...)
}

// remoteRevocation revokes at one rank, which ends the receives of all other ranks.
func remoteRevocation(g *group) error {
	waiting := g.pending()
	g.ts[2].Revoke(errors.New("enough"))
	return wantAborted(2, "enough", waiting[:2]...)
}

// blockedSendRevoked revokes at a third rank while a Send is blocked because its receiver does not receive.
func blockedSendRevoked(g *group) error {
	started := make(chan struct{})
	done := begin(func() error { return g.flood(g.ctx, 0, 1, started) })
	<-started
	g.ts[2].Revoke(errors.New("enough"))
	return wantAborted(2, "enough", done)
}

// causesArrive revokes with each of the typed errors. The other ranks must get an equal error.
func causesArrive(g *group) error {
	cause := &transport.MismatchError{RankA: 1, RankB: 2, A: tag(1).Call, B: transport.Call{Kind: transport.KindScan}, Detail: "why"}
	waiting := g.pending()
	g.ts[1].Revoke(fmt.Errorf("wrapped: %w", cause))
	var errs []error
	for rank, done := range waiting {
		var got *transport.MismatchError
		if err := <-done; !errors.As(err, &got) || !reflect.DeepEqual(got, cause) {
			errs = append(errs, fmt.Errorf("rank %d got %v, want %v", rank, err, cause))
		}
	}
	return errors.Join(errs...)
}

// plainCause revokes with an error of no special type. The revoking rank gets the same error, and
// the other ranks get an *AbortError with the text of this error.
func plainCause(g *group) error {
	cause := errors.New("disk full")
	waiting := g.pending()
	g.ts[0].Revoke(cause)
	if err := <-waiting[0]; !errors.Is(err, cause) {
		return fmt.Errorf("at the rank itself: %v", err)
	}
	for _, done := range waiting[1:] {
		var got *transport.AbortError
		if err := <-done; !errors.As(err, &got) || *got != (transport.AbortError{Rank: 0, Cause: "disk full"}) {
			return fmt.Errorf("at another rank: %v", err)
		}
	}
	return nil
}

// firstCauseStays revokes again at each rank after this rank has got the first revocation.
func firstCauseStays(g *group) error {
	first := &transport.AbortError{Rank: 0, Cause: "first"}
	waiting := g.pending()
	g.ts[0].Revoke(first)
	for rank, done := range waiting {
		<-done
		g.ts[rank].Revoke(errors.New("second"))
	}
	return g.each(func(rank int) error {
		for _, err := range []error{
			g.ts[rank].Recv(g.ctx, 0, tag(1), nil),
			g.ts[rank].Send(g.ctx, 1, tag(1), nil),
		} {
			var got *transport.AbortError
			if !errors.As(err, &got) || *got != *first {
				return fmt.Errorf("later call: %v, want %v", err, first)
			}
		}
		return nil
	})
}

// manyRevoke revokes at all ranks at the same time. Each rank keeps one cause, from any rank, and no call hangs.
func manyRevoke(g *group) error {
	waiting := g.pending()
	err := g.each(func(rank int) error {
		g.ts[rank].Revoke(&transport.AbortError{Rank: rank, Cause: "all at once"})
		return nil
	})
	for rank, done := range waiting {
		var first, again *transport.AbortError
		if got := <-done; !errors.As(got, &first) {
			return fmt.Errorf("rank %d got %v", rank, got)
		}
		if got := g.ts[rank].Recv(g.ctx, 0, tag(2), nil); !errors.As(got, &again) || *again != *first {
			return fmt.Errorf("rank %d got %v, then %v", rank, first, got)
		}
	}
	return err
}

// wantLost checks that err is a *PeerError for the rank dead.
func wantLost(err error, dead int) error {
	var p *transport.PeerError
	if !errors.As(err, &p) || p.Rank != dead || !errors.Is(err, transport.ErrRevoked) {
		return fmt.Errorf("got %v, want the loss of rank %d", err, dead)
	}
	return nil
}

// death kills rank 1, for which only rank 0 waits.
func death(g *group) error {
	if err := g.each(func(rank int) error { return g.exchange(rank, 1) }); err != nil {
		return err
	}
	waiting := g.pending()
	g.kill(g.ts[1])
	<-waiting[1] // its error does not matter, because the rank is dead
	var errs []error
	for _, rank := range []int{0, 2, 3} {
		errs = append(errs, wantLost(<-waiting[rank], 1))
	}
	return errors.Join(errs...)
}

// exchange sends a message from a rank to every rank, and receives a message from every rank.
func (g *group) exchange(rank int, seq uint32) error {
	for to := range g.ts {
		if err := g.send(rank, to, tag(seq), "hello"); err != nil {
			return err
		}
	}
	for from := range g.ts {
		if err := g.want(rank, from, tag(seq), "hello"); err != nil {
			return err
		}
	}
	return nil
}

// deathWhileSending kills a rank that does not receive while another rank sends to it.
func deathWhileSending(g *group) error {
	started := make(chan struct{})
	done := begin(func() error { return g.flood(g.ctx, 0, 1, started) })
	<-started
	g.kill(g.ts[1])
	return wantLost(<-done, 1)
}

// sendBufferIntact interrupts a blocked send. flood checks that the send buffer has not changed.
func sendBufferIntact(g *group) error {
	started := make(chan struct{})
	done := begin(func() error { return g.flood(g.ctx, 0, 1, started) })
	<-started
	g.ts[0].Revoke(&transport.AbortError{Rank: 0, Cause: "test"})
	return wantAborted(0, "test", done)
}
