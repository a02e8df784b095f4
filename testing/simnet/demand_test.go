package simnet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/simnet"
)

// manyRanks is the number of members in the tests of large views. Its binary logarithm is less than
// 8.
const manyRanks = 200

// Each of many members sends messages to members that are chosen at random, with most of which it
// has no lane. All messages arrive. A member closes without an error while other members may still
// receive.
func TestManyTalk(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			link := simnet.Link{Delay: 100 * time.Microsecond, Lag: time.Millisecond}
			inBubble(t, manyRanks, simnet.Config{Seed: seed, Link: link}, func(t *testing.T, b *bench) {
				ts := b.connect()
				plan := drawTalk(rand.New(rand.NewPCG(seed, 1)))
				var all sync.WaitGroup
				for rank, e := range ts {
					all.Go(func() {
						if err := errors.Join(plan.take(t, e, rank), e.Close()); err != nil {
							t.Errorf("rank %d: %v", rank, err)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// talk lists messages. Message i goes from rank from[i] to rank to[i].
type talk struct{ from, to []int }

// drawTalk draws five messages for each rank.
func drawTalk(rng *rand.Rand) (p talk) {
	for from := range manyRanks {
		for range 5 {
			p.from, p.to = append(p.from, from), append(p.to, rng.IntN(manyRanks))
		}
	}
	return p
}

// take sends and receives the messages of a rank.
func (p talk) take(t *testing.T, e transport.Transport, rank int) error {
	var wait []transport.Posted
	got := make([][1]byte, len(p.from))
	for i := range p.from {
		env := transport.Envelope{Seq: uint32(i)}
		if p.from[i] == rank {
			if err := e.Send(t.Context(), p.to[i], env, []byte{byte(i)}); err != nil {
				return err
			}
		}
		if p.to[i] == rank {
			wait = append(wait, e.Post(p.from[i], env, got[i][:]))
		}
	}
	var errs []error
	for _, w := range wait {
		errs = append(errs, w.Wait(t.Context()))
	}
	for i, b := range got {
		if p.to[i] == rank && b[0] != byte(i) {
			errs = append(errs, fmt.Errorf("message %d is %d", i, b[0]))
		}
	}
	return errors.Join(errs...)
}

// A revocation and a death reach all members of a large view over few hops.
func TestManyRevoked(t *testing.T) {
	const delay = time.Millisecond
	for name, end := range map[string]func(b *bench, ts []transport.Transport){
		"revoked": func(_ *bench, ts []transport.Transport) { ts[77].Revoke(errors.New("enough")) },
		"died":    func(b *bench, _ []transport.Transport) { b.Kill(b.view.Members[77].ID) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, manyRanks, simnet.Config{Link: simnet.Link{Delay: delay}}, func(t *testing.T, b *bench) {
				ts := b.connect()
				begun := time.Now()
				end(b, ts)
				for rank, e := range ts {
					err := e.Recv(t.Context(), rank, transport.Envelope{}, nil) // waits for a message of the rank itself, which no rank sends
					if rank == 77 {
						continue
					}
					var lost *transport.PeerError
					var abort *transport.AbortError
					if (!errors.As(err, &lost) || lost.Rank != 77) && (!errors.As(err, &abort) || abort.Rank != 77) {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
				// A death is detected one hop and ResetDelay later.
				if took := time.Since(begun); took > 8*delay+5*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				for _, e := range ts {
					_ = begin(e.Close)
				}
			})
		})
	}
}
