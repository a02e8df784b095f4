package simnet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/internal/race"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
)

// seeds returns the number of runs of a test with random links. Under the race detector it is a tenth: a run takes ten times as
// long there, and all seeds run the same code.
func seeds() uint64 {
	n := uint64(flag.Lookup("seeds").Value.(flag.Getter).Get().(int))
	if race.Enabled {
		return max(1, n/10)
	}
	return n
}

// No call of a correct program fails, however slow and lossy the links are: latency from 1 to 1000
// ms, loss up to 10 %.
func TestSlowLinkIsNoMistake(t *testing.T) {
	for seed := range seeds() {
		link := anyLink(rand.New(rand.NewPCG(seed, 1)))
		inBubble(t, 3, simnet.Config{Seed: seed, Link: link}, func(t *testing.T, b *bench) {
			errs := cluster.Run(t, 3, relay, cluster.Over(b.connect()), cluster.MayFail())
			if err := errors.Join(errs...); err != nil {
				t.Errorf("seed %d: %+v: %v", seed, link, err)
			}
		})
	}
}

// relay passes 1.5 MB from each rank to the next, between collective calls.
func relay(ctx context.Context, c *collective.Comm) error {
	left, right := (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	src, dst := make([]byte, 1_500_000), make([]byte, 1_500_000)
	for round := range 4 {
		for i := range src {
			src[i] = byte(i + c.Rank() + round)
		}
		err := error(nil)
		if c.Rank() == 0 {
			err = errors.Join(collective.Send(ctx, c, right, 1, src), collective.Recv(ctx, c, left, 1, dst))
		} else {
			err = errors.Join(collective.Recv(ctx, c, left, 1, dst), collective.Send(ctx, c, right, 1, src))
		}
		if err := errors.Join(err, collective.Barrier(ctx, c)); err != nil {
			return err
		}
		for i := range dst {
			if dst[i] != byte(i+left+round) {
				return fmt.Errorf("round %d: byte %d is wrong", round, i)
			}
		}
	}
	return nil
}
