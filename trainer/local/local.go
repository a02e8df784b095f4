// Package local trains with local steps: peers take many steps of an optimizer each on its
// own samples before they sum anything, so a sample costs a small part of the bytes and of
// the waiting. It is for links that are slow beside the model.
//
//	cfg := trainer.Config{
//		Samples: 60000, GlobalBatch: 512, Passes: 10,
//		Optimizer: optim.SGD{Momentum: 0.9, Nesterov: true}, Schedule: optim.Constant(0.1),
//	}
//	model, cfg, err := local.Wrap(model, cfg, local.Config{Steps: 50})
//	if err != nil {
//		return err
//	}
//	err = trainer.Run(ctx, group, model, cfg)
//
// Wrap takes a model and the configuration of ordinary training, and returns both for
// training in rounds of Config.Steps local steps. A round is a step of the trainer. Each
// microbatch of the round is a path: from the parameters that all peers have in common, the
// inner optimizer (that of the configuration) takes a step for every microbatch of ordinary
// training. The path's gradient is how far it came, before minus after, times its samples.
// The trainer sums these as any gradients, and the outer optimizer (Config.Outer) applies
// their mean:
//
//	Outer                               Rate  name
//	SGD{}                               1     local SGD (Stich, arXiv 1805.09767), FedAvg (McMahan
//	                                          and others, arXiv 1602.05629)
//	SGD{Momentum: 0.9, Nesterov: true}  0.7   DiLoCo (Douillard and others, arXiv 2311.08105)
//
// A round has as many paths as a step of ordinary training has microbatches, whatever the
// number of peers: GlobalBatch / Microbatch. One peer computes all of them, one after the
// other; as many peers as paths compute one each. So the result does not depend on the peers
// but for the rounding of sums, and in exact mode not at all. Peers may come, go and die as
// ever: paths that are complete stay in the sum, and the weights are those of samples.
// Everything else of the trainer works as well: shares by speed, in whole paths; compression;
// checkpoints, after whole rounds; evaluation. A local step has a microbatch's samples, and wants
// a rate that suits a batch of that size.
//
// # Peers of different speeds
//
// Shares of whole paths follow speeds better the more paths there are for each peer; peers beyond
// the number of paths have nothing to compute. With Config.BySpeed each peer has one path through
// its whole share, so that it takes as many local steps as its speed allows, and nobody waits. The
// local steps of all peers are together as many as otherwise, and the peers' differences have the
// weights of their samples. The result depends on who computes what then, and is only as
// reproducible as the speeds are.
//
// # Slow networks
//
// With Config.Delay the mean of a round is applied at the end of the round after it. So a round is
// computed while the sums of the one before are on their way, and takes about as long as the
// longer of both. What is outstanding is part of the state (trainer.Config.Delay). Sums that come
// a round late want a smaller outer rate, or less momentum.
//
// # What differs from ordinary training
//
// The inner optimizer begins each path with a state of zeros, and counts its steps from 1.
// (DiLoCo keeps that state at each peer, which makes the result depend on the peers.) Losses
// are those of the parameters along the paths. The noise scale in reports is one of paths,
// and tells nothing of batches. Config.Clip limits the gradients of local steps, each by
// itself. Model.Order, MaxSamples, Grouped and Waits have no effect, as a path is computed by
// itself and has its gradient when it ends: nothing of a sum is hidden behind computing.
// A peer leaves or notices that a session has ended between two calls, which have a path each, or
// with Delay or BySpeed all of its share. trainer.CheckModel is for the model that Wrap is given: a
// path is not the sum of its halves.
//
// A model takes the memory of three more copies of its parameters, and of one for each slot of
// the inner optimizer. With Delay in exact mode it is one copy more for each further path of a
// peer's share.
package local

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// Config says how a round differs from a step of ordinary training. It must be the same at
// every peer; peers that differ are refused with a word about it.
type Config struct {
	// Steps is how many local steps a path has, 1 at least; the last ones of a pass may have
	// fewer. With 1 all peers sum after every step, as in ordinary training.
	Steps int
	// Outer applies the mean of the differences; nil stands for optim.SGD{}.
	Outer optim.Optimizer
	// Rate is the rate of Outer by rounds, from 1; nil stands for optim.Constant(1). With
	// optim.SGD{} and a rate of 1 the new parameters are the mean of where the paths ended.
	Rate optim.Schedule
	// Delay applies the mean of a round at the end of the round after it, and that of the last
	// one when training ends, so that no peer waits for sums as long as computing a round takes
	// longer.
	Delay bool
	// BySpeed gives each peer one path through its whole share, which follows its speed. It does
	// not go with exact mode, in which all paths have equally many steps, whoever computes them.
	BySpeed bool
}

// Wrap returns the model and the configuration for training with local steps, made from those
// of ordinary training. Of m it replaces Gradient, and what that makes useless; of cfg
//
//   - Microbatch and GlobalBatch become c.Steps times as much, so that samples, paths and
//     passes are those of ordinary training; with c.BySpeed Microbatch stays, as shares are
//     counted in local steps;
//   - Steps, if it is set, becomes the number of rounds that have the samples of so many
//     steps, rounded up;
//   - Optimizer, Schedule and Clip are those of local steps from now on, and c.Outer and c.Rate
//     take their place. Schedule is asked for the number of the step of ordinary training that
//     would be as far in the pass;
//   - Delay is that of c;
//   - Settings get what c says.
//
// m and cfg stay as they are. An error says which field makes no sense; what Wrap does not need
// trainer.Run checks. Only one Run at a time may use the model.
func Wrap(m trainer.Model, cfg trainer.Config, c Config) (trainer.Model, trainer.Config, error) {
	if cfg.Microbatch == 0 {
		cfg.Microbatch = trainer.DefaultMicrobatch
	}
	if c.Outer == nil {
		c.Outer = optim.SGD{}
	}
	if c.Rate == nil {
		c.Rate = optim.Constant(1)
	}
	if err := check(m, cfg, c); err != nil {
		return m, cfg, err
	}
	p := newPath(m, cfg, c)
	cfg.Settings = append(cfg.Settings[:len(cfg.Settings):len(cfg.Settings)], settings(cfg, c)...)
	cfg.Steps = p.place.rounds(cfg.Steps)
	if !c.BySpeed {
		cfg.Microbatch *= c.Steps
	}
	cfg.GlobalBatch *= c.Steps
	cfg.Optimizer, cfg.Schedule, cfg.Clip, cfg.Delay = c.Outer, c.Rate, 0, c.Delay

	m.Gradient = p.gradient
	m.Waits, m.MaxSamples, m.Grouped, m.Order, m.Whole = false, 0, false, nil, c.BySpeed
	if c.Delay { // what is computed while sums are on their way has to be all of the share
		m.MaxSamples, m.Grouped = cfg.GlobalBatch, true
	}
	return m, cfg, nil
}

// check says what Wrap cannot work with.
func check(m trainer.Model, cfg trainer.Config, c Config) error {
	switch {
	case m.Gradient == nil:
		return errors.New("local: the model computes nothing: set Model.Gradient")
	case c.Steps < 1:
		return fmt.Errorf("local: Steps is %d, want 1 or more", c.Steps)
	case cfg.Samples < 1 || cfg.GlobalBatch < 1 || cfg.Microbatch < 1:
		return fmt.Errorf("local: Samples is %d, GlobalBatch %d and Microbatch %d, want 1 or more", cfg.Samples, cfg.GlobalBatch, cfg.Microbatch)
	case c.Steps > math.MaxInt/max(cfg.GlobalBatch, cfg.Microbatch):
		return fmt.Errorf("local: Steps is %d, too many for batches of %d", c.Steps, max(cfg.GlobalBatch, cfg.Microbatch))
	case cfg.Optimizer == nil || cfg.Schedule == nil:
		return errors.New("local: Optimizer and Schedule of the local steps must be set")
	case c.BySpeed && cfg.Exact:
		return errors.New("local: BySpeed does not go with Exact: results would depend on the speeds of the peers; leave one of them out")
	case c.BySpeed && cfg.Balance == "equal":
		return errors.New("local: BySpeed does not go with the balance equal, by which shares do not follow speeds: choose another one")
	case cfg.Delay:
		return errors.New("local: Delay of the trainer is set: set that of local.Config instead, as it is rounds that are late")
	case !(cfg.Clip >= 0):
		return fmt.Errorf("local: Clip is %v, want 0 or more", cfg.Clip)
	}
	if err := cfg.Optimizer.Check(); err != nil {
		return fmt.Errorf("local: local steps: %w", err)
	}
	if err := c.Outer.Check(); err != nil {
		return fmt.Errorf("local: Outer: %w", err)
	}
	return nil
}

// settings lists what peers compare beside what the trainer does: it has the sizes and what
// is of the outer optimizer.
func settings(cfg trainer.Config, c Config) []elastic.Setting {
	last := cfg.TotalSteps()
	rates := fnv.New64a()
	for i := range int64(100) {
		fmt.Fprintln(rates, cfg.Schedule(1+i*max(0, last-1)/99)) // never fails
	}
	return []elastic.Setting{
		{Name: "local steps", Value: fmt.Sprint(c.Steps)},
		{Name: "local delay", Value: fmt.Sprint(c.Delay)},
		{Name: "local steps by speed", Value: fmt.Sprint(c.BySpeed)},
		{Name: "local optimizer", Value: fmt.Sprintf("%T%+v, clip %v", cfg.Optimizer, cfg.Optimizer, cfg.Clip)},
		{Name: "local schedule", Value: fmt.Sprintf("%016x", rates.Sum64()),
			Text: fmt.Sprintf("%.4g, %.4g, %.4g at steps 1, %d, %d", cfg.Schedule(1), cfg.Schedule((1+last)/2), cfg.Schedule(last), (1+last)/2, last)},
	}
}

// place turns rounds into the steps of ordinary training that have the same samples.
type place struct {
	steps   int64 // of a round
	perPass int64 // steps of ordinary training in a pass; the last round of each may be short
}

// newPlace is for the configuration of ordinary training.
func newPlace(cfg trainer.Config, steps int) place {
	return place{steps: int64(steps), perPass: ceilDiv(int64(cfg.Samples), int64(cfg.GlobalBatch))}
}

// rounds returns how many rounds have the samples of so many first steps, at least.
func (p place) rounds(steps int64) int64 {
	return steps/p.perPass*ceilDiv(p.perPass, p.steps) + ceilDiv(steps%p.perPass, p.steps)
}

// step returns which step of ordinary training local step k of a round stands for; both count
// from 1. A path of a short round may have more steps than the pass has left; they all stand
// for the last one.
func (p place) step(round, k int64) int64 {
	perPass := ceilDiv(p.perPass, p.steps) // rounds
	pass, within := (round-1)/perPass, (round-1)%perPass
	return pass*p.perPass + min(within*p.steps+k, p.perPass)
}

// ceilDiv divides and rounds up; a >= 0, b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
