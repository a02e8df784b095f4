package networktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mailbox"
)

// checks lists the subtests that may run in parallel.
func checks(o Options) []check {
	all := []check{
		{"alone", 1, func(g *group) error { return g.worksOnce(g.next()) }},
		{"view after view", 3, viewAfterView},
		{"next view before the last is closed", 3, nextBeforeClose},
		{"two views at once", 3, twoViews},
		{"members come and go", 4, comeAndGo},
		{"blocked send is revoked", 3, blockedSend},
		{"late messages", 2, lateMessages},
		{"closed behind messages", 2, closedBehind},
		{"closed behind a full mailbox", 2, closedBehindFull},
		{"revoked while others enter", 3, revokedWhileEntering},
		{"entering is given up", 3, givenUp},
		{"a member does not enter", 3, missing},
		{"a view that is over", 2, over},
		{"control messages between views", 3, controlMessages},
		{"control messages cross", 3, cross},
	}
	all = append(all, demandChecks(o)...)
	if o.Kill != nil {
		all = append(all, check{"a member dies while others enter", 3, dies})
	}
	if o.Break != nil {
		all = append(all, check{"a lane is lost while control lives", 3, laneLost})
	}
	return all
}

// viewAfterView closes each view before it enters the next, in which the ranks differ.
func viewAfterView(g *group) error {
	return errors.Join(g.worksOnce(g.next(0, 1, 2)), g.worksOnce(g.next(2, 0, 1)), g.worksOnce(g.next(1, 2, 0)))
}

// nextBeforeClose enters a view while the previous one still works.
func nextBeforeClose(g *group) error {
	v := g.next()
	first, err := g.enter(v)
	if err != nil {
		return err
	}
	w := g.next(2, 1, 0)
	second, err := g.enter(w)
	if err != nil {
		return errors.Join(err, closeAll(first))
	}
	return errors.Join(g.works(v, first), closeAll(first), g.works(w, second), closeAll(second))
}

// twoViews lets each rank enter the second view as soon as the rank has entered and closed the
// first.
func twoViews(g *group) error {
	v, w := g.next(), g.next()
	first, second := make([]transport.Transport, 3), make([]transport.Transport, 3)
	err := each(3, func(rank int) (err error) {
		if first[rank], err = g.connect(g.ctx, v, rank); err != nil {
			return err
		}
		if err = first[rank].Close(); err != nil {
			return err
		}
		second[rank], err = g.connect(g.ctx, w, rank)
		return err
	})
	if err == nil {
		err = g.works(w, second)
	}
	return errors.Join(err, closeAll(second))
}

// comeAndGo enters views with fewer and more members.
func comeAndGo(g *group) error {
	for _, order := range [][]int{{0, 1}, {0, 1, 2, 3}, {3, 1}, {2}, {2, 0, 3, 1}} {
		if err := g.worksOnce(g.next(order...)); err != nil {
			return err
		}
	}
	return nil
}

// large is the length of a message that does not fit into the buffers of a connection. A mailbox
// has no room for many such messages.
const large = 64 << 20

// blockedSend revokes a view in the middle of a message that the peer does not receive. Send
// returns at once and does not use its buffer any more. The rest of the message does not disturb
// the next view.
func blockedSend(g *group) error {
	v := g.next()
	ts, err := g.enter(v)
	if err != nil {
		return err
	}
	buf := make([]byte, large)
	sent := make(chan error, 1)
	go func() { // sends until the receiver has no room
		var err error
		for seq := uint32(7); err == nil; seq++ {
			err = ts[0].Send(g.ctx, 1, envelope(seq), buf)
		}
		sent <- err
	}()
	errs := []error{g.works(v, ts)} // while Send is blocked
	began := time.Now()
	ts[2].Revoke(errors.New("enough"))
	var abort *transport.AbortError
	if err := <-sent; !errors.As(err, &abort) || abort.Rank != 2 {
		errs = append(errs, fmt.Errorf("a blocked send ended with %v, want that rank 2 has aborted", err))
	}
	errs = append(errs, g.soon("a blocked send ended", began))
	for i := range buf {
		buf[i] = 0xff
	}
	w := g.next()
	next, err := g.enter(w)
	if err != nil {
		return errors.Join(append(errs, err, closeAll(ts))...)
	}
	got := make([]byte, large)
	errs = append(errs, closeAll(ts), each(2, func(rank int) error {
		if rank == 0 {
			return next[0].Send(g.ctx, 1, envelope(7), buf)
		}
		return next[1].Recv(g.ctx, 0, envelope(7), got)
	}))
	for i, b := range got {
		if b != 0xff {
			errs = append(errs, fmt.Errorf("byte %d is %#x, want the byte sent in this view", i, b))
			break
		}
	}
	return errors.Join(append(errs, g.works(w, next), closeAll(next))...)
}

// lateMessages leaves messages behind in two short views. The third view receives none of them.
func lateMessages(g *group) error {
	for range 2 {
		ts, err := g.enter(g.next())
		if err != nil {
			return err
		}
		if err := ts[0].Send(g.ctx, 1, envelope(1), []byte("late")); err != nil {
			return err
		}
		ts[1].Revoke(errors.New("another view"))
		if err := closeAll(ts); err != nil {
			return err
		}
	}
	return g.worksOnce(g.next())
}

// closedBehind closes a rank after it has sent messages that the other rank receives later. The
// mailbox of the receiver has room for all messages.
func closedBehind(g *group) error {
	v := g.next()
	ts, err := g.enter(v)
	if err != nil {
		return err
	}
	const size, count = 64 << 10, 16
	sent := each(2, func(rank int) error {
		for i := range uint32(count) {
			if rank == 0 {
				if err := ts[0].Send(g.ctx, 1, envelope(i), make([]byte, size)); err != nil {
					return err
				}
				continue
			}
			// Receives in the opposite order, so that all messages wait in the mailbox.
			if err := ts[1].Recv(g.ctx, 0, envelope(count-1-i), make([]byte, size)); err != nil {
				return fmt.Errorf("message %d: %w", count-1-i, err)
			}
		}
		if rank == 0 {
			return ts[0].Close()
		}
		return nil
	})
	return errors.Join(sent, ts[1].Close(), g.worksOnce(g.next()))
}

// closedBehindFull is like closedBehind, but the mailbox of the receiver does not have room for all
// messages.
func closedBehindFull(g *group) error {
	v := g.next()
	ts, err := g.enter(v)
	if err != nil {
		return err
	}
	sizes := slices.Repeat([]int{mailbox.DefaultLimit / 64}, 64)
	sizes = append(sizes, slices.Repeat([]int{1000}, 16)...)
	for i, n := range sizes {
		if err := ts[0].Send(g.ctx, 1, envelope(uint32(i)), slices.Repeat([]byte{byte(i)}, n)); err != nil {
			return errors.Join(err, closeAll(ts))
		}
	}
	began := time.Now()
	errs := []error{ts[0].Close(), g.soon("a rank was closed", began)}
	for i, n := range slices.Backward(sizes) {
		got := make([]byte, n)
		if err := ts[1].Recv(g.ctx, 0, envelope(uint32(i)), got); err != nil || got[0] != byte(i) || got[n-1] != byte(i) {
			errs = append(errs, fmt.Errorf("message %d of %d: %x ... %x, %w", i, len(sizes), got[0], got[n-1], err))
			break
		}
	}
	return errors.Join(append(errs, ts[1].Close(), g.worksOnce(g.next()))...)
}

// laneLost breaks the streams that two ranks have for a view. All ranks get an error. The two ranks
// can still send control messages to each other, no member is reported lost, and the next view
// works.
func laneLost(g *group) error {
	v := g.next()
	ts, err := g.enter(v)
	if err != nil {
		return err
	}
	errs := []error{g.works(v, ts), g.greet(0, 1), g.greet(1, 0)}
	g.cut(g.ends[0], g.ends[1])
	errs = append(errs, each(3, func(rank int) error {
		var lost *collective.PeerError
		err := ts[rank].Recv(g.ctx, (rank+1)%3, envelope(9), make([]byte, 1))
		if !errors.As(err, &lost) || lost.Rank > 1 {
			return fmt.Errorf("rank %d: %v, want the loss of rank 0 or 1", rank, err)
		}
		return nil
	}), g.greet(0, 1), g.greet(1, 0), closeAll(ts), g.worksOnce(g.next()))
	// Rank 2 does not count: it may have begun a control stream as a probe, and given it up when the
	// session was entered.
	if n := g.mail[0].losses(g.members[1].ID) + g.mail[1].losses(g.members[0].ID); n > 0 {
		errs = append(errs, fmt.Errorf("%d members were taken for dead", n))
	}
	return errors.Join(errs...)
}

// greet sends a control message from one endpoint to another, and waits until it arrives.
func (g *group) greet(from, to int) error {
	if err := g.ends[from].Network.Send(g.ctx, g.members[to].ID, []byte("greetings")); err != nil {
		return err
	}
	if got, err := g.mail[to].next(g.ctx, g.members[from].ID); err != nil || string(got) != "greetings" {
		return fmt.Errorf("%d got %q of %d: %w", to, got, from, err)
	}
	return nil
}

// revokedWhileEntering lets each subset of ranks revoke a view as soon as they have entered it,
// while the other ranks still enter. The other ranks get an error, while they enter or later. All
// ranks can enter the next view.
func revokedWhileEntering(g *group) error {
	for set := range 1 << 3 {
		if err := g.revokedBy(set); err != nil {
			return fmt.Errorf("ranks %03b have revoked: %w", set, err)
		}
	}
	return nil
}

// revokedBy lets a set of ranks revoke a view at once, and checks that the next one works.
func (g *group) revokedBy(set int) error {
	v := g.next()
	ts := make([]transport.Transport, 3)
	told := each(3, func(rank int) (err error) {
		if ts[rank], err = g.connect(g.ctx, v, rank); err == nil && set>>rank&1 == 1 {
			ts[rank].Revoke(errors.New("at once"))
		}
		if err == nil && set != 0 {
			err = ts[rank].Recv(g.ctx, (rank+1)%3, envelope(1), nil)
		}
		if set>>rank&1 == 1 && err != nil {
			return nil // revoked by itself or by another rank
		}
		var abort *transport.AbortError
		switch {
		case set == 0 && err == nil,
			errors.As(err, &abort) && set>>abort.Rank&1 == 1,
			set != 0 && errors.Is(err, transport.ErrRevoked): // without a rank, if a peer has entered and left before its answer arrived
			return nil
		}
		return fmt.Errorf("rank %d: %w, want that one of the ranks has aborted", rank, err)
	})
	if told != nil {
		return errors.Join(told, closeAll(ts))
	}
	w := g.next(1, 2, 0)
	next, err := g.enter(w)
	if err != nil {
		return errors.Join(err, closeAll(ts))
	}
	return errors.Join(closeAll(ts), g.works(w, next), closeAll(next))
}

// givenUp cancels the attempts of two ranks to enter a view. The rank between them, with which both
// have planned lanes, never enters.
func givenUp(g *group) error {
	v := g.next()
	ctx, cancel := context.WithCancelCause(g.ctx)
	why := errors.New("a better view")
	left := make(chan error, 2)
	for _, rank := range []int{0, 2} {
		go func() {
			t, err := g.connect(ctx, v, rank)
			if err == nil {
				_ = t.Close()
				err = errors.New("entered without rank 1")
			}
			left <- err
		}()
	}
	cancel(why)
	var errs []error
	for range 2 {
		if err := <-left; !errors.Is(err, why) {
			errs = append(errs, fmt.Errorf("%v, want the cause for which it was given up", err))
		}
	}
	return errors.Join(append(errs, g.worksOnce(g.next()))...)
}

// missing checks that the error names a rank that does not enter in time.
func missing(g *group) error {
	v := g.next()
	ctx, cancel := context.WithTimeout(g.ctx, time.Second)
	defer cancel()
	var lost *collective.PeerError
	t, err := g.connect(ctx, v, 0)
	if err == nil {
		_ = t.Close()
	}
	if !errors.As(err, &lost) || lost.Rank == 0 || !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%v, want a rank that did not come, and the deadline", err)
	} else {
		err = nil
	}
	return errors.Join(err, g.worksOnce(g.next()))
}

// dies kills a member for which two other members wait. These get an error, while they enter the
// view or in a call. Then they enter the next view without the dead member.
func dies(g *group) error {
	v := g.next()
	told := make(chan error, 2)
	for rank := range 2 {
		go func() {
			t, err := g.connect(g.ctx, v, rank)
			if err == nil {
				err = t.Recv(g.ctx, 2, envelope(1), make([]byte, 1))
				_ = t.Close()
			}
			told <- err
		}()
	}
	g.kill(g.ends[2])
	var errs []error
	for range 2 {
		var lost *collective.PeerError
		if err := <-told; !errors.As(err, &lost) || lost.Rank != 2 {
			errs = append(errs, fmt.Errorf("%v, want the loss of rank 2", err))
		}
	}
	return errors.Join(append(errs, g.worksOnce(g.next(1, 0)))...)
}

// over checks that no rank can enter a view after a later view.
func over(g *group) error {
	v := g.next()
	if err := errors.Join(g.worksOnce(v), g.worksOnce(g.next())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(g.ctx, time.Second)
	defer cancel()
	t, err := g.connect(ctx, v, 0)
	if err == nil {
		return errors.Join(errors.New("entered a view that is over"), t.Close())
	}
	return g.worksOnce(g.next())
}

// controlMessages sends control messages while views change.
func controlMessages(g *group) error {
	for range 5 {
		v := g.next()
		ts, err := g.enter(v)
		if err != nil {
			return err
		}
		said := each(3, func(rank int) error {
			to := v.Members[(rank+1)%3].ID
			return g.end(v, rank).Network.Send(g.ctx, to, []byte("a control message"))
		})
		if err := errors.Join(said, g.works(v, ts), closeAll(ts)); err != nil {
			return err
		}
	}
	return nil
}

// cross sends control messages between all endpoints at the same time. The first messages are sent
// before there are connections. Each message arrives once and in order.
func cross(g *group) error {
	const count = 50
	text := func(from, i int) []byte { return fmt.Appendf(nil, "message %d of %d", i, from) }
	err := each(3, func(from int) error {
		return each(3, func(to int) error {
			for i := range count {
				if to == from {
					break
				}
				if err := g.ends[from].Network.Send(g.ctx, g.members[to].ID, text(from, i)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return each(3, func(to int) error {
		return each(3, func(from int) error {
			for i := range count {
				if to == from {
					break
				}
				got, err := g.mail[to].next(g.ctx, g.members[from].ID)
				if err != nil || string(got) != string(text(from, i)) {
					return fmt.Errorf("%d got %q (%w), want message %d of %d", to, got, err, i, from)
				}
			}
			return nil
		})
	})
}

// manyViews enters one view after another, some of which are revoked. After the first tenth of the views, the further ones must
// not leave resources behind.
func manyViews(g *group, count int) error {
	var v elastic.View
	var before usage
	for i := range count {
		if i == count/10 {
			before = used()
		}
		v = g.next(i%3, (i+1)%3, (i+2)%3)
		ts, err := g.enter(v)
		if err != nil {
			return err
		}
		err = g.works(v, ts)
		if i%4 == 3 {
			ts[i%3].Revoke(errors.New("the next view"))
		}
		if err := errors.Join(err, closeAll(ts)); err != nil {
			return err
		}
	}
	return before.grown(used(), count-count/10)
}
