package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
)

// tuneRounds is the number of rounds. Each round measures all algorithms, so that a disturbance of
// the machine affects all of them alike.
const tuneRounds = 5

// Tune is Run with every algorithm that can do the call, in several rounds. It passes to report the
// round with the median time, for each size and algorithm. cfg.Algorithm is ignored.
func Tune(ctx context.Context, c *collective.Comm, cfg Config, report func(Result) error) error {
	for _, bytes := range cfg.Bytes {
		auto, err := chosen(c, cfg, bytes)
		if err != nil {
			return err
		}
		byAlgorithm, err := tune(ctx, c, cfg, bytes)
		if err != nil {
			return err
		}
		for _, rounds := range byAlgorithm {
			r := middle(rounds)
			r.Auto = r.Algorithm == auto
			if err := report(r); err != nil {
				return fmt.Errorf("bench: report: %w", err)
			}
		}
	}
	return nil
}

// tune measures one size and returns the results of all rounds, by algorithm.
func tune(ctx context.Context, c *collective.Comm, cfg Config, bytes int) ([][]Result, error) {
	candidates := candidates(c, cfg, bytes)
	out := make([][]Result, len(candidates))
	// All rounds together make as many iterations as a measurement without --tune; a median needs
	// at least three iterations in each round.
	cfg.Bytes, cfg.Iters = []int{bytes}, max(3, Iterations(cfg.Iters, bytes)/tuneRounds)
	for range tuneRounds {
		for i, a := range candidates {
			cfg.Algorithm = a
			err := Run(ctx, c, cfg, func(r Result) error {
				out[i] = append(out[i], r)
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// candidates returns the algorithms that can do the call, the same at all ranks. For an algorithm
// that cannot do the call Comm.Choice returns an error or another algorithm.
func candidates(c *collective.Comm, cfg Config, bytes int) []collective.Algorithm {
	var out []collective.Algorithm
	for a := collective.Ring; a <= collective.TwoLevel; a++ {
		if name, err := chosen(c.With(collective.CallOptions{Algorithm: a}), cfg, bytes); err == nil && name == a.String() {
			out = append(out, a)
		}
	}
	return out
}

// middle returns the round with the median of the rounds' medians, as one delayed call on a busy
// machine would dominate a mean. Its wrong elements are those of all rounds.
func middle(rounds []Result) Result {
	wrong := int64(0)
	for _, r := range rounds {
		wrong += r.Wrong
	}
	slices.SortFunc(rounds, func(a, b Result) int { return cmp.Compare(a.P50, b.P50) })
	r := rounds[len(rounds)/2]
	r.Wrong = wrong
	return r
}
