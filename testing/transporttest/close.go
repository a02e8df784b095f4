package transporttest

import (
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective/transport"
)

// closeChecks returns the checks of item 9 of the contract.
func closeChecks() []check {
	return []check{
		{"9 Close ends calls of the rank itself", 2, closeEndsOwnCalls},
		{"9 Close twice, Close when revoked", 2, closeTwice},
		{"9 what was sent before Close arrives", 3, sentBeforeClose},
		{"9 waiting for a closed rank", 3, waitingForClosed},
		{"9 sending to a closed rank", 2, sendingToClosed},
		{"9 a close disturbs nobody", 4, closeDisturbsNobody},
		{"9 all close at once", 4, allClose},
	}
}

// closeEndsOwnCalls closes a rank during a receive and a blocked send. Later calls at this rank fail.
func closeEndsOwnCalls(g *group) error {
	recv := begin(func() error { return g.ts[0].Recv(g.ctx, 1, tag(1), make([]byte, 5)) })
	started := make(chan struct{})
	send := begin(func() error { return g.flood(g.ctx, 0, 1, started) })
	<-started
	closed := g.ts[0].Close()
	for what, err := range map[string]error{
		"pending receive": <-recv,
		"pending send":    <-send,
		"later receive":   g.ts[0].Recv(g.ctx, 1, tag(1), nil),
		"later send":      g.ts[0].Send(g.ctx, 1, tag(1), nil),
	} {
		if !errors.Is(err, transport.ErrClosed) {
			return fmt.Errorf("%s: %v", what, err)
		}
	}
	return closed
}

// closeTwice closes twice after a revocation. Calls still return the cause of the revocation.
func closeTwice(g *group) error {
	cause := &transport.AbortError{Rank: 1, Cause: "enough"}
	waiting := g.pending()
	g.ts[1].Revoke(cause)
	<-waiting[0]
	err := g.each(func(rank int) error { return errors.Join(g.ts[rank].Close(), g.ts[rank].Close()) })
	var got *transport.AbortError
	if late := g.ts[0].Recv(g.ctx, 1, tag(1), nil); !errors.As(late, &got) || *got != *cause {
		err = errors.Join(err, fmt.Errorf("after Close: %v, want %v", late, cause))
	}
	return err
}

// sentBeforeClose receives only after the sender is closed. The messages are so short that a
// transport must buffer them without a receive.
func sentBeforeClose(g *group) error {
	const count, size = 8, 100_000
	for i := range count {
		for to := 1; to < 3; to++ {
			if err := g.ts[0].Send(g.ctx, to, tag(uint32(i)), pattern(size, 0, to, i)); err != nil {
				return err
			}
		}
	}
	if err := g.ts[0].Close(); err != nil {
		return err
	}
	for i := count - 1; i >= 0; i-- {
		for to := 1; to < 3; to++ {
			if err := g.want(to, 0, tag(uint32(i)), string(pattern(size, 0, to, i))); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitingForClosed closes rank 0 while another rank waits for a message of rank 0. All other ranks
// get the loss of rank 0.
func waitingForClosed(g *group) error {
	waiting := g.pending()
	closed := begin(g.ts[0].Close) // rank 2 waits for rank 0, rank 1 for rank 2
	<-waiting[0]
	err := errors.Join(wantLost(<-waiting[1], 0), wantLost(<-waiting[2], 0), <-closed)
	late := g.ts[2].Recv(g.ctx, 0, tag(1), nil)
	return errors.Join(err, wantLost(late, 0))
}

// sendingToClosed sends to a closed rank until a send fails. The first sends may succeed.
func sendingToClosed(g *group) error {
	if err := g.ts[0].Close(); err != nil {
		return err
	}
	return wantLost(g.flood(g.ctx, 1, 0, make(chan struct{})), 0)
}

// closeDisturbsNobody closes rank 0 when the other ranks have received all its messages and send it
// none. The other ranks continue without an error.
func closeDisturbsNobody(g *group) error {
	if err := g.each(func(rank int) error { return g.exchange(rank, 1) }); err != nil {
		return err
	}
	if err := g.ts[0].Close(); err != nil {
		return err
	}
	for round := range uint32(20) {
		err := g.each(func(rank int) error {
			if rank == 0 {
				return nil
			}
			next, before := rank%3+1, (rank+1)%3+1
			return errors.Join(g.send(rank, next, tag(round), "go on"), g.want(rank, before, tag(round), "go on"))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// allClose lets each rank close as soon as it has received everything, while others may still
// receive its messages.
func allClose(g *group) error {
	return g.each(func(rank int) error {
		err := g.exchange(rank, 1)
		return errors.Join(err, g.ts[rank].Close())
	})
}
