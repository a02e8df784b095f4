package transporttest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective/transport"
)

// signalChecks returns the checks of item 8 of the contract.
func signalChecks() []check {
	return []check{
		{"8 signals arrive in order", 2, signalsInOrder},
		{"8 signals follow messages", 2, signalsFollowMessages},
		{"8 signals never block", 3, signalsNeverBlock},
		{"8 signals of an ended transport", 2, signalsAfterEnd},
	}
}

// next waits for a signal at a rank.
func (g *group) next(rank int) (transport.Signal, error) {
	select {
	case s, ok := <-g.ts[rank].Signals():
		if !ok {
			return s, errors.New("the channel of signals was closed")
		}
		return s, nil
	case <-g.ctx.Done():
		return transport.Signal{}, errors.New("no signal came")
	}
}

// signalsInOrder sends each signal after the previous one has arrived, so that none is lost because
// of a full channel.
func signalsInOrder(g *group) error {
	msg := make([]byte, transport.MaxSignal)
	for i := range 20 {
		copy(msg, pattern(len(msg), 0, 1, i))
		g.ts[0].Signal(1, msg[:i*len(msg)/19])
		want := pattern(len(msg), 0, 1, i)[:i*len(msg)/19]
		clear(msg) // permitted, because Signal does not keep the buffer
		s, err := g.next(1)
		if err != nil {
			return fmt.Errorf("signal %d: %w", i, err)
		}
		if s.From != 0 || !bytes.Equal(s.Data, want) {
			return fmt.Errorf("signal %d: %d bytes from %d, want %d from 0", i, len(s.Data), s.From, len(want))
		}
	}
	g.ts[1].Signal(1, []byte("self"))
	if s, err := g.next(1); err != nil || s.From != 1 || string(s.Data) != "self" {
		return fmt.Errorf("to self: %q from %d, %v", s.Data, s.From, err)
	}
	return nil
}

// signalsFollowMessages closes the sender after its signal has arrived. A message that the signal
// had overtaken could not be received after the close.
func signalsFollowMessages(g *group) error {
	if err := g.send(0, 1, tag(1), "before"); err != nil {
		return err
	}
	g.ts[0].Signal(1, []byte("after"))
	if _, err := g.next(1); err != nil {
		return err
	}
	closed := begin(g.ts[0].Close)
	return errors.Join(g.want(1, 0, tag(1), "before"), <-closed)
}

// signalsNeverBlock sends signals to ranks that do not read them, and then messages.
func signalsNeverBlock(g *group) error {
	msg := make([]byte, transport.MaxSignal)
	err := g.each(func(rank int) error {
		for i := range 5000 {
			g.ts[rank].Signal(i%len(g.ts), msg)
		}
		return nil
	})
	return errors.Join(err, g.each(func(rank int) error { return g.exchange(rank, 1) }))
}

// signalsAfterEnd sends signals after the transport was revoked, and after it was closed. Nothing blocks or panics, and the
// channel stays open.
func signalsAfterEnd(g *group) error {
	waiting := g.pending()
	g.ts[0].Revoke(errors.New("enough"))
	<-waiting[0]
	<-waiting[1]
	g.ts[0].Signal(1, []byte("late"))
	err := g.each(func(rank int) error { return g.ts[rank].Close() })
	g.ts[0].Signal(1, []byte("later"))
	for rank := range g.ts {
		select {
		case _, ok := <-g.ts[rank].Signals():
			if !ok {
				err = errors.Join(err, errors.New("the channel of signals was closed"))
			}
		default:
		}
	}
	return err
}
