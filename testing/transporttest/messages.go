package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/elrun/elrun/collective/transport"
)

// messageChecks returns the checks of items 1 to 3 and 6 of the contract.
func messageChecks() []check {
	return []check{
		{"1 buffer may be reused after Send", 2, bufferReuse},
		{"1 other length is a mismatch", 3, lengthMismatch},
		{"1 other call is a mismatch", 3, callMismatch},
		{"2 order within a tag", 2, orderWithinTag},
		{"2 priorities change no order within a tag", 2, orderOfPriorities},
		{"2 tags are independent", 2, tagsIndependent},
		{"2 an unasked-for message blocks no other", 2, unaskedBlocksNothing},
		{"2 zero length", 2, zeroLength},
		{"2 send to self", 1, sendToSelf},
		{"3 concurrent use", 3, concurrentUse},
		{"6 epochs are separate", 2, commsSeparate},
	}
}

// bufferReuse overwrites the buffer as soon as Send returns.
func bufferReuse(g *group) error {
	sent := begin(func() error {
		buf := []byte("first")
		for _, next := range []string{"other", "third"} {
			if err := g.ts[0].Send(g.ctx, 1, tag(1), buf); err != nil {
				return err
			}
			copy(buf, next)
		}
		return nil
	})
	return errors.Join(g.want(1, 0, tag(1), "first"), g.want(1, 0, tag(1), "other"), <-sent)
}

// lengthMismatch sends a message of another length than rank 1 expects.
func lengthMismatch(g *group) error {
	want := transport.MismatchError{RankA: 1, RankB: 0, A: tag(1).Call, B: tag(1).Call}
	return mismatch(g, tag(1), "too long", want)
}

// callMismatch sends a message that has the right length and belongs to another call.
func callMismatch(g *group) error {
	other := tag(1)
	other.Call.Count++
	return mismatch(g, other, "right", transport.MismatchError{RankA: 1, RankB: 0, A: tag(1).Call, B: other.Call})
}

// mismatch sends text under e from rank 0 to rank 1, which expects 5 bytes under tag 1. All ranks must get the error want; the
// receiver may add a detail.
func mismatch(g *group, e transport.Envelope, text string, want transport.MismatchError) error {
	send := []byte(text)
	causes := g.errors(func(rank int) error {
		switch rank {
		case 0:
			// Send may succeed before the receiver has compared.
			if err := g.ts[0].Send(g.ctx, 1, e, send); err != nil {
				return err
			}
		case 1:
			return g.ts[1].Recv(g.ctx, 0, tag(1), make([]byte, 5))
		}
		return g.ts[rank].Recv(g.ctx, (rank+1)%3, tag(9), nil)
	})
	var errs []error
	for rank, err := range causes {
		var m *transport.MismatchError
		if !errors.As(err, &m) {
			errs = append(errs, fmt.Errorf("rank %d got %v, want a mismatch", rank, err))
			continue
		}
		got := *m
		got.Detail = ""
		if got != want {
			errs = append(errs, fmt.Errorf("rank %d got %v, want %v", rank, &got, &want))
		}
	}
	if string(send) != text {
		errs = append(errs, fmt.Errorf("the send buffer became %q", send))
	}
	return errors.Join(errs...)
}

// orderWithinTag numbers the messages of one tag and checks their order.
func orderWithinTag(g *group) error {
	const count = 200
	sent := begin(func() error {
		for i := range count {
			if err := g.send(0, 1, tag(1), fmt.Sprintf("%5d", i)); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range count {
		if err := g.want(1, 0, tag(1), fmt.Sprintf("%5d", i)); err != nil {
			return err
		}
	}
	return <-sent
}

// orderOfPriorities sends messages of all priorities under several tags at the same time, to a rank that does not know the
// priorities. Messages with the same tag arrive in order.
func orderOfPriorities(g *group) error {
	const tags, count, size = 3, 60, 3000
	var sends []<-chan error
	for k := range uint32(tags) {
		sends = append(sends, begin(func() error {
			for i := range count {
				e := tag(k)
				e.Priority = int32(i*i%5 - 2)
				if err := g.ts[0].Send(g.ctx, 1, e, pattern(size, 0, int(k), i)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for i := range count {
		for k := range uint32(tags) {
			if err := g.want(1, 0, tag(k), string(pattern(size, 0, int(k), i))); err != nil {
				return fmt.Errorf("message %d of tag %d: %w", i, k, err)
			}
		}
	}
	for _, done := range sends {
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

// tagsIndependent receives in the opposite order of sending. The messages differ in all parts of a tag.
func tagsIndependent(g *group) error {
	far := tag(1)
	far.Comm++
	keys := []transport.Envelope{tag(1), tag(2), tag(1 << 31), far}
	var sends []<-chan error
	for i, e := range keys {
		sends = append(sends, begin(func() error { return g.send(0, 1, e, fmt.Sprint("message ", i)) }))
	}
	for i := len(keys) - 1; i >= 0; i-- {
		if err := g.want(1, 0, keys[i], fmt.Sprint("message ", i)); err != nil {
			return err
		}
	}
	for _, done := range sends {
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

// unaskedBlocksNothing sends more than any transport buffers, under tags that the receiver receives
// only after a later message.
func unaskedBlocksNothing(g *group) error {
	const count, size = 12, 2 << 20
	var sends []<-chan error
	for i := range uint32(count) {
		sends = append(sends, begin(func() error { return g.ts[0].Send(g.ctx, 1, tag(i), pattern(size, 0, 1, int(i))) }))
	}
	sends = append(sends, begin(func() error { return g.send(0, 1, tag(99), "small") }))
	if err := g.want(1, 0, tag(99), "small"); err != nil {
		return err
	}
	for i := range uint32(count) {
		if err := g.want(1, 0, tag(i), string(pattern(size, 0, 1, int(i)))); err != nil {
			return err
		}
	}
	for _, done := range sends {
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

// zeroLength sends empty messages among others. Each arrives, and matches exactly one receive.
func zeroLength(g *group) error {
	sent := begin(func() error {
		return errors.Join(g.send(0, 1, tag(1), ""), g.send(0, 1, tag(1), "after"), g.send(0, 1, tag(2), ""))
	})
	return errors.Join(g.want(1, 0, tag(2), ""), g.want(1, 0, tag(1), ""), g.want(1, 0, tag(1), "after"), <-sent)
}

// sendToSelf sends from a rank to itself, in a group of one.
func sendToSelf(g *group) error {
	big := pattern(1<<20, 0, 0, 0)
	sent := begin(func() error {
		return errors.Join(g.send(0, 0, tag(1), "one"), g.send(0, 0, tag(1), "two"), g.ts[0].Send(g.ctx, 0, tag(2), big))
	})
	return errors.Join(g.want(0, 0, tag(2), string(big)), g.want(0, 0, tag(1), "one"), g.want(0, 0, tag(1), "two"), <-sent)
}

// concurrentUse sends between all pairs of ranks, and from each rank to itself, under several tags
// at the same time.
func concurrentUse(g *group) error {
	const tags, count = 4, 40
	size := func(i int) int { return i * i * i % 5000 }
	n := len(g.ts)
	return g.each(func(rank int) error {
		var all sync.WaitGroup
		errs := make(chan error, 2*n*tags)
		for k := range n * tags {
			peer, e := k%n, tag(uint32(k/n))
			all.Go(func() {
				for i := range count {
					if err := g.ts[rank].Send(g.ctx, peer, e, pattern(size(i), rank, peer, i)); err != nil {
						errs <- err
						return
					}
				}
			})
			all.Go(func() {
				for i := range count {
					buf := make([]byte, size(i))
					err := g.ts[rank].Recv(g.ctx, peer, e, buf)
					if err == nil && !bytes.Equal(buf, pattern(size(i), peer, rank, i)) {
						err = fmt.Errorf("message %d from %d differs from the sent one", i, peer)
					}
					if err != nil {
						errs <- err
						return
					}
				}
			})
		}
		all.Wait()
		close(errs)
		return <-errs
	})
}

// commsSeparate sends the same Seq in two communicators.
func commsSeparate(g *group) error {
	a, b := tag(1), tag(1)
	b.Comm = 1 << 60
	sent := begin(func() error { return errors.Join(g.send(0, 1, a, "in a"), g.send(0, 1, b, "in b")) })
	return errors.Join(g.want(1, 0, b, "in b"), g.want(1, 0, a, "in a"), <-sent)
}
