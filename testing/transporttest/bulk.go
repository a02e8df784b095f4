package transporttest

import (
	"bytes"
	"errors"
	"fmt"
)

// bulkChecks returns checks that fill every buffer between the ranks, in both directions.
func bulkChecks() []check {
	return []check{
		{"large messages both ways at once", 2, largeBothWays},
		{"many messages both ways at once", 2, manyBothWays},
		{"1 a posted receive is asked for", 2, postedIsAskedFor},
		{"ring", 4, ring},
	}
}

// largeBothWays sends messages that are larger than the windows and other limits between the ranks.
func largeBothWays(g *group) error {
	return g.stream(2, func(int) int { return 8 << 20 })
}

// manyBothWays sends messages of many sizes up to 100 KiB, because implementations send short and
// long messages in different ways.
func manyBothWays(g *group) error {
	return g.stream(120, func(i int) int { return i * i * 7 % (100 << 10) })
}

// stream sends count messages from each of two ranks to the other, at the same time.
func (g *group) stream(count int, size func(i int) int) error {
	return g.each(func(rank int) error {
		peer := 1 - rank
		sent := begin(func() error {
			for i := range count {
				if err := g.ts[rank].Send(g.ctx, peer, tag(uint32(i)), pattern(size(i), rank, peer, i)); err != nil {
					return fmt.Errorf("send %d: %w", i, err)
				}
			}
			return nil
		})
		for i := range count {
			buf := make([]byte, size(i))
			if err := g.ts[rank].Recv(g.ctx, peer, tag(uint32(i)), buf); err != nil {
				return fmt.Errorf("receive %d: %w", i, err)
			}
			if !bytes.Equal(buf, pattern(size(i), peer, rank, i)) {
				return fmt.Errorf("message %d differs from the sent one", i)
			}
		}
		return <-sent
	})
}

// postedIsAskedFor checks that Post requests a message before Wait is called. Each rank posts a
// receive and sends messages, the last of which is for the posted receive. A transport does not
// buffer as many messages without a receive, so the ranks would hang if only Wait requested the
// message.
func postedIsAskedFor(g *group) error {
	const count, size, last = 8, 4 << 20, 1000
	return g.each(func(rank int) error {
		t, peer := g.ts[rank], 1-rank
		buf := make([]byte, 5)
		posted := t.Post(peer, tag(last), buf)
		var errs []error
		for i := range count {
			errs = append(errs, t.Send(g.ctx, peer, tag(uint32(i)), pattern(size, rank, peer, i)))
		}
		errs = append(errs, g.send(rank, peer, tag(last), "posts"), posted.Wait(g.ctx))
		if string(buf) != "posts" {
			errs = append(errs, fmt.Errorf("the posted receive got %q", buf))
		}
		for i := range count {
			errs = append(errs, g.want(rank, peer, tag(uint32(i)), string(pattern(size, peer, rank, i))))
		}
		return errors.Join(errs...)
	})
}

// ring passes segments around a ring, as collectives do: each rank forwards a segment while it
// receives the next.
func ring(g *group) error {
	const segments, size = 20, 64 << 10
	n := len(g.ts)
	return g.each(func(rank int) error {
		next, before := (rank+1)%n, (rank+n-1)%n
		var errs []error
		for hop := range n - 1 {
			origin := (rank - hop + n) % n
			sent := begin(func() error {
				for i := range segments {
					if err := g.ts[rank].Send(g.ctx, next, tag(uint32(hop)), pattern(size, origin, 0, i)); err != nil {
						return err
					}
				}
				return nil
			})
			for i := range segments {
				want := pattern(size, (rank-hop-1+n)%n, 0, i)
				errs = append(errs, g.want(rank, before, tag(uint32(hop)), string(want)))
			}
			errs = append(errs, <-sent)
		}
		return errors.Join(errs...)
	})
}
