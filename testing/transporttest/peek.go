package transporttest

import (
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective/transport"
)

// peekChecks returns the checks of item 10 of the contract.
func peekChecks() []check {
	return []check{
		{"10 Peek sees messages and leaves them", 3, peekLeaves},
		{"10 Peek ends when it is stopped", 2, peekStops},
		{"10 Peek ends with the transport", 3, peekFails},
		{"10 Peek at closed ranks", 3, peekClosed},
	}
}

// anyMessage matches all messages.
func anyMessage(int, transport.Envelope) bool { return true }

// peekLeaves looks for messages before and after they come, and receives them afterwards.
func peekLeaves(g *group) error {
	sent := begin(func() error { return errors.Join(g.send(1, 0, tag(1), "first"), g.send(1, 0, tag(2), "other")) })
	for range 2 {
		from, e, err := g.ts[0].Peek([]int{0, 1, 2}, nil, func(_ int, e transport.Envelope) bool { return e.Seq == 2 })
		if err != nil || from != 1 || e.Seq != 2 || e.Call != tag(2).Call {
			return fmt.Errorf("peeked %+v of rank %d: %w", e, from, err)
		}
	}
	if err := errors.Join(<-sent, g.want(0, 1, tag(2), "other")); err != nil {
		return err
	}
	// The message of tag 2 is gone, so only the messages of tag 1 and of rank 2 match.
	if from, e, err := g.ts[0].Peek([]int{1}, nil, anyMessage); err != nil || from != 1 || e.Seq != 1 {
		return fmt.Errorf("peeked %+v of rank %d: %w", e, from, err)
	}
	sent = begin(func() error { return g.send(2, 0, tag(1), "third") })
	from, _, err := g.ts[0].Peek([]int{0, 2}, nil, anyMessage)
	if err != nil || from != 2 {
		return fmt.Errorf("peeked at rank %d: %w", from, err)
	}
	return errors.Join(<-sent, g.want(0, 2, tag(1), "third"), g.want(0, 1, tag(1), "first"))
}

// peekStops stops a Peek for which no message comes.
func peekStops(g *group) error {
	stop := make(chan struct{})
	peeked := begin(func() error {
		from, _, err := g.ts[0].Peek([]int{1}, stop, anyMessage)
		if from != -1 {
			err = errors.Join(err, fmt.Errorf("peeked at rank %d", from))
		}
		return err
	})
	close(stop)
	return errors.Join(<-peeked, g.send(0, 1, tag(1), "first"), g.want(1, 0, tag(1), "first"))
}

// peekFails revokes while a rank peeks.
func peekFails(g *group) error {
	peeked := begin(func() error {
		_, _, err := g.ts[0].Peek([]int{1, 2}, nil, anyMessage)
		return err
	})
	cause := &transport.AbortError{Rank: 1, Cause: "enough"}
	g.ts[1].Revoke(cause)
	var got *transport.AbortError
	if err := <-peeked; !errors.As(err, &got) || *got != *cause {
		return fmt.Errorf("got %v, want %v", err, cause)
	}
	return nil
}

// peekClosed looks for messages of ranks that close: first there is a message, then none can come.
func peekClosed(g *group) error {
	if err := errors.Join(g.send(1, 0, tag(1), "first"), g.ts[1].Close()); err != nil {
		return err
	}
	closed := begin(g.ts[2].Close)
	if from, _, err := g.ts[0].Peek([]int{0, 1, 2}, nil, anyMessage); err != nil || from != 1 {
		return fmt.Errorf("peeked at rank %d: %w", from, err)
	}
	if err := g.want(0, 1, tag(1), "first"); err != nil {
		return err
	}
	_, _, err := g.ts[0].Peek([]int{0, 1, 2}, nil, anyMessage)
	if !errors.Is(err, transport.ErrPeer) {
		return fmt.Errorf("peeked at closed ranks: %w", err)
	}
	return <-closed
}
