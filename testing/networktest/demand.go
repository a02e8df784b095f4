package networktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// demandChecks returns checks of pairs of ranks whose lanes may be made only when they are needed,
// as with the plan Chain.
func demandChecks(o Options) []check {
	all := []check{
		{"first messages cross", 6, firstMessages},
		{"revocation from end to end", 6, revokedFromEndToEnd},
		{"first message before the peer enters", 4, beforeEntering},
		{"first message to a peer that closes", 4, func(g *group) error { return meanwhile(g, firstToClosing) }},
		{"first message to a peer that revokes", 4, func(g *group) error { return meanwhile(g, firstToRevoking) }},
		{"first message of a peer that closes", 4, func(g *group) error { return meanwhile(g, firstOfClosing) }},
		{"first message of a peer that revokes", 4, func(g *group) error { return meanwhile(g, firstOfRevoking) }},
		{"first signal to a closed peer", 4, firstSignal},
		{"waiting for a peer that closes", 4, waitForClosing},
	}
	if o.Kill != nil {
		all = append(all, check{"first message to a peer that dies", 4, firstToDying})
	}
	return all
}

// moments is the number of delays with which meanwhile tries two events.
const moments = 16

// meanwhile calls try for one view after another, each time with other delays. In try two events
// happen at about the same time: the first after the delay wait, the second after the delay late.
func meanwhile(g *group, try func(g *group, ts []transport.Transport, wait, late time.Duration) error) error {
	for i := range moments {
		var wait, late time.Duration
		if d := time.Duration(i/2) * g.atOnce / 200; i%2 == 0 {
			wait = min(d, time.Duration(i)*200*time.Microsecond)
		} else {
			late = min(d, time.Duration(i)*200*time.Microsecond)
		}
		v := g.next()
		ts, err := g.enter(v)
		if err != nil {
			return err
		}
		if err := errors.Join(try(g, ts, wait, late), closeAll(ts)); err != nil {
			return fmt.Errorf("%v and %v: %w", wait, late, err)
		}
	}
	return g.worksOnce(g.next())
}

// after waits for the time d.
func after(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// onlyOf returns nil if err says that rank has aborted (with aborted) or that rank is lost
// (without). Otherwise it returns an error.
func onlyOf(err error, rank int, aborted bool) error {
	var lost *transport.PeerError
	var abort *transport.AbortError
	switch {
	case aborted && errors.As(err, &abort) && abort.Rank == rank:
		return nil
	case !aborted && errors.As(err, &lost) && lost.Rank == rank:
		return nil
	}
	return fmt.Errorf("%v, want an error by rank %d, which has aborted: %t", err, rank, aborted)
}

// firstMessages lets all ranks send at the same time, in views in which the members have different
// ranks.
func firstMessages(g *group) error {
	for _, order := range [][]int{nil, {5, 3, 1, 0, 2, 4}, {0, 2, 4, 1, 3, 5}, {2, 0, 1}, nil} {
		if err := g.worksOnce(g.next(order...)); err != nil {
			return err
		}
	}
	return nil
}

// revokedFromEndToEnd revokes a view at the first rank while the last rank uses it. No other
// messages have been sent.
func revokedFromEndToEnd(g *group) error {
	ts, err := g.enter(g.next())
	if err != nil {
		return err
	}
	began := time.Now()
	ts[0].Revoke(errors.New("enough"))
	told := each(len(ts), func(rank int) error {
		if err := onlyOf(ts[rank].Recv(g.ctx, rank, envelope(1), nil), 0, true); err != nil && rank > 0 {
			return err
		}
		return nil
	})
	return errors.Join(told, g.soon("a revocation came", began), closeAll(ts), g.worksOnce(g.next()))
}

// beforeEntering sends to a rank that enters later.
func beforeEntering(g *group) error {
	v := g.next()
	ts := make([]transport.Transport, len(v.Members))
	enter := func(rank int) (err error) {
		ts[rank], err = g.connect(g.ctx, v, rank)
		return err
	}
	early := make(chan error, 2)
	go func() { early <- enter(1) }()
	go func() {
		err := enter(0)
		if err == nil {
			err = ts[0].Send(g.ctx, 2, envelope(1), []byte("early"))
		}
		early <- err
	}()
	after(g.atOnce / 100)
	late := each(2, func(i int) error { return enter(2 + i) })
	if err := errors.Join(late, <-early, <-early); err != nil {
		return errors.Join(err, closeAll(ts))
	}
	got := make([]byte, 5)
	err := ts[2].Recv(g.ctx, 0, envelope(1), got)
	if err == nil && string(got) != "early" {
		err = fmt.Errorf("got %q", got)
	}
	return errors.Join(err, closeAll(ts))
}

// firstToClosing sends the first message to a rank that closes. If the message is sent, the view of
// the other ranks continues to work. Otherwise the error is the loss of the closed rank.
func firstToClosing(g *group, ts []transport.Transport, wait, late time.Duration) error {
	closed := make(chan error, 1)
	go func() {
		after(wait)
		closed <- ts[3].Close()
	}()
	after(late)
	err := ts[0].Send(g.ctx, 3, envelope(1), []byte("hello"))
	if err == nil {
		return errors.Join(<-closed, each(3, func(rank int) error { return undisturbed(g, ts, rank) }))
	}
	return errors.Join(<-closed, onlyOf(err, 3, false))
}

// undisturbed exchanges messages between the first three ranks.
func undisturbed(g *group, ts []transport.Transport, rank int) error {
	if err := ts[rank].Send(g.ctx, (rank+1)%3, envelope(2), nil); err != nil {
		return err
	}
	return ts[rank].Recv(g.ctx, (rank+2)%3, envelope(2), nil)
}

// firstToRevoking sends the first message to a rank that revokes. The errors name the revocation,
// and no loss of a member.
func firstToRevoking(g *group, ts []transport.Transport, wait, late time.Duration) error {
	go func() {
		after(wait)
		ts[3].Revoke(errors.New("enough"))
	}()
	after(late)
	if err := ts[0].Send(g.ctx, 3, envelope(1), []byte("hello")); err != nil {
		return onlyOf(err, 3, true)
	}
	return each(3, func(rank int) error { return onlyOf(ts[rank].Recv(g.ctx, rank, envelope(2), nil), 3, true) })
}

// firstOfClosing closes a rank directly after its first message to another rank, which must still
// receive the message.
func firstOfClosing(g *group, ts []transport.Transport, wait, late time.Duration) error {
	closed := make(chan error, 1)
	go func() {
		after(wait)
		err := ts[3].Send(g.ctx, 0, envelope(1), []byte("hello"))
		closed <- errors.Join(err, ts[3].Close())
	}()
	after(late)
	got := make([]byte, 5)
	err := ts[0].Recv(g.ctx, 3, envelope(1), got)
	if err == nil && string(got) != "hello" {
		err = fmt.Errorf("got %q", got)
	}
	return errors.Join(err, <-closed, each(3, func(rank int) error { return undisturbed(g, ts, rank) }))
}

// firstOfRevoking revokes the view at a rank that is sending its first message to another rank.
func firstOfRevoking(g *group, ts []transport.Transport, wait, late time.Duration) error {
	sent := make(chan error, 1)
	go func() { sent <- ts[3].Send(g.ctx, 0, envelope(1), []byte("hello")) }()
	after(max(wait, late))
	ts[3].Revoke(errors.New("enough"))
	<-sent
	return each(3, func(rank int) error { return onlyOf(ts[rank].Recv(g.ctx, rank, envelope(2), nil), 3, true) })
}

// firstSignal sends a signal, and then a message, to a rank that has closed. The signal has no
// effect on the other ranks, and the message is an error.
func firstSignal(g *group) error {
	ts, err := g.enter(g.next())
	if err != nil {
		return err
	}
	errs := []error{ts[3].Close()}
	ts[0].Signal(3, []byte("are you there"))
	for range 20 {
		errs = append(errs, each(3, func(rank int) error { return undisturbed(g, ts, rank) }))
		after(g.atOnce / 100)
	}
	errs = append(errs, onlyOf(ts[0].Recv(g.ctx, 3, envelope(1), nil), 3, false))
	errs = append(errs, onlyOf(ts[0].Send(g.ctx, 3, envelope(1), nil), 3, false))
	return errors.Join(errors.Join(errs...), closeAll(ts), g.worksOnce(g.next()))
}

// waitForClosing waits for a message of a rank that closes without sending any message.
func waitForClosing(g *group) error {
	ts, err := g.enter(g.next())
	if err != nil {
		return err
	}
	lost := make(chan error, 1)
	go func() { lost <- ts[0].Recv(g.ctx, 3, envelope(1), nil) }()
	after(g.atOnce / 100)
	began := time.Now()
	err = errors.Join(ts[3].Close(), onlyOf(<-lost, 3, false), g.soon("a rank was closed", began))
	return errors.Join(err, closeAll(ts), g.worksOnce(g.next()))
}

// firstToDying sends messages to a rank that dies, until sending fails because of the death.
func firstToDying(g *group) error {
	ts, err := g.enter(g.next())
	if err != nil {
		return err
	}
	go g.kill(g.end(g.last, 3))
	began := time.Now()
	for seq := uint32(1); err == nil; seq++ {
		err = ts[0].Send(g.ctx, 3, envelope(seq), []byte("hello"))
	}
	errs := []error{onlyOf(err, 3, false), g.soon("a rank died", began)}
	errs = append(errs, onlyOf(ts[1].Recv(g.ctx, 0, envelope(2), nil), 3, false))
	return errors.Join(errors.Join(errs...), closeAll(ts), g.worksOnce(g.next(2, 0, 1)))
}
