// Package local trains with local steps (local SGD): each peer takes many optimizer steps on its
// own samples before the peers reduce anything. That divides communication and waiting per sample
// by the number of local steps. It is for networks that are slow in relation to the size of the
// model.
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
// Wrap takes a model and the configuration of ordinary training. It returns both for training in
// rounds of Config.Steps local steps. A round is one step of the trainer. Each microbatch of a
// round is a path: the inner optimizer, which is the optimizer of the configuration, starts from
// the parameters that all peers share and makes one step for each microbatch of ordinary
// training. The gradient of a path is its displacement, parameters before minus parameters after,
// times its number of samples. The trainer sums these gradients over all paths as usual, and the
// outer optimizer (Config.Outer) applies the mean:
//
//	Outer                               Rate  name
//	SGD{}                               1     local SGD (Stich, arXiv 1805.09767), FedAvg (McMahan
//	                                          and others, arXiv 1602.05629)
//	SGD{Momentum: 0.9, Nesterov: true}  0.7   DiLoCo (Douillard and others, arXiv 2311.08105)
//
// A round has as many paths as a step of ordinary training has microbatches, GlobalBatch /
// Microbatch, whatever the number of peers. A single peer computes them one after the other; with
// one peer for each path they run in parallel. So the result does not depend on the peers, except
// for rounding in sums, and in exact mode it does not depend on them at all. Peers may join, leave
// and die as in ordinary training: completed paths stay in the sum, and each sample has the same
// weight. The other features of the trainer work too: balancing, in units of whole paths;
// compression; checkpoints, after whole rounds; evaluation. A local step uses the samples of one
// microbatch, so the learning rate should suit a batch of that size.
//
// # Peers of different speeds
//
// Balancing assigns whole paths, so shares follow speeds more closely if there are more paths for
// each peer. If there are more peers than paths, some peers are idle. With Config.BySpeed each peer
// has one path through its whole share and takes as many local steps as its speed allows, so that
// all finish at the same time. The total number of local steps stays the same, and displacements
// are weighted by samples. The result then depends on the assignment of samples to peers, and so on
// their speeds.
//
// # Slow networks
//
// With Config.Delay the mean of a round is applied at the end of the next round (a staleness of
// one). So sums are computed while the next round runs, and a round takes about as long as its local
// steps or its sums, whichever take longer. The outstanding mean is part of the state
// (trainer.Gradients.Delay). Stale sums require a smaller outer learning rate, or less momentum.
//
// # Differences from ordinary training
//
// The inner optimizer starts each path with zero state and step number 1. (DiLoCo keeps the inner
// state at each peer, which makes the result depend on the peers.) Losses are measured along the
// paths. The gradient noise scale in reports is measured on paths, and is no guide to the batch
// size. Gradients.Clip limits the gradient of each local step. Model.Order, MaxSamples, Grouped and
// Waits have no effect: a path is computed alone and its gradient is complete only at its end, so
// communication does not overlap with computation. A peer leaves, or notices the end of a session,
// between two calls of the model; a call computes one path, or with Delay or BySpeed the whole
// share. trainer.CheckModel applies to the model before Wrap: the gradient of a path is not the sum
// of the gradients of its halves.
//
// The wrapped model needs memory for three more copies of the parameters, and one more for each
// slot of the inner optimizer. With Delay in exact mode it needs one more copy for each further
// path of a peer's share.
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

// Config describes the rounds. It must be the same at every peer; a peer whose Config differs is
// refused with an error that names the difference.
type Config struct {
	// Steps is the number of local steps of a path, 1 or more. The last round of a pass may have
	// fewer. If it is 1, the peers sum after every step, as in ordinary training.
	Steps int
	// Outer applies the mean displacement of the paths; nil means optim.SGD{}.
	Outer optim.Optimizer
	// Rate is the learning-rate schedule of Outer, by rounds from 1; nil means optim.Constant(1).
	// With optim.SGD{} and a rate of 1 the new parameters are the mean of the parameters at the ends
	// of the paths.
	Rate optim.Schedule
	// Delay applies the mean of a round at the end of the next round, and the mean of the last
	// round when training ends. Peers then wait for sums only if the sums take longer than
	// computing a round.
	Delay bool
	// BySpeed gives each peer one path through its whole share, with more local steps at faster
	// peers. BySpeed is refused in exact mode, in which the length of a path must not depend on the
	// peer.
	BySpeed bool
}

// Wrap converts the model and the configuration of ordinary training to training with local
// steps. In the result m.Gradient computes paths, and the fields of m that do not apply to paths
// are reset. In cfg
//
//   - Microbatch and GlobalBatch are multiplied by c.Steps, so that samples, the number of paths and
//     passes correspond to ordinary training; with c.BySpeed Microbatch stays, because shares
//     are counted in local steps;
//   - Steps, if it is set, becomes the number of rounds with at least as many samples;
//   - c.Outer and c.Rate replace Optimizer and Schedule. The given Optimizer, Schedule and
//     Gradients.Clip then apply to local steps. Schedule gets the number of the step of ordinary
//     training at the same position in the pass;
//   - Gradients.Delay is c.Delay;
//   - Settings also has the fields of c.
//
// The arguments are not modified. An error names the field that is invalid; Wrap checks only the
// fields that it uses, trainer.Run checks the rest. Only one Run at a time may use the model.
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
	cfg.Steps = p.steps.rounds(cfg.Steps)
	if !c.BySpeed {
		cfg.Microbatch *= c.Steps
	}
	cfg.GlobalBatch *= c.Steps
	cfg.Optimizer, cfg.Schedule, cfg.Gradients.Clip, cfg.Gradients.Delay = c.Outer, c.Rate, 0, c.Delay

	m.Gradient = p.gradient
	m.Waits, m.MaxSamples, m.Grouped, m.Order, m.Whole = false, 0, false, nil, c.BySpeed
	if c.Delay { // with Delay one call has to compute the whole share, while the sums of the previous round arrive
		m.MaxSamples, m.Grouped = cfg.GlobalBatch, true
	}
	return m, cfg, nil
}

// check returns an error for arguments with which Wrap cannot work.
func check(m trainer.Model, cfg trainer.Config, c Config) error {
	switch {
	case m.Gradient == nil:
		return errors.New("local: the model has no gradient function: set Model.Gradient")
	case m.GradScale != 0:
		return errors.New("local: Model.GradScale is set: leave it out, as local steps apply gradients as they are")
	case c.Steps < 1:
		return fmt.Errorf("local: Steps is %d, want 1 or more", c.Steps)
	case cfg.Samples < 1 || cfg.GlobalBatch < 1 || cfg.Microbatch < 1:
		return fmt.Errorf("local: Samples is %d, GlobalBatch %d and Microbatch %d, want 1 or more", cfg.Samples, cfg.GlobalBatch, cfg.Microbatch)
	case c.Steps > math.MaxInt/max(cfg.GlobalBatch, cfg.Microbatch):
		return fmt.Errorf("local: Steps is %d, too many for batches of %d: lower it", c.Steps, max(cfg.GlobalBatch, cfg.Microbatch))
	case cfg.Optimizer == nil || cfg.Schedule == nil:
		return errors.New("local: Optimizer or Schedule of the local steps is nil: set both")
	case c.BySpeed && cfg.Gradients.Exact:
		return errors.New("local: BySpeed and Gradients.Exact are both set: unset one of them, as results with BySpeed depend on the speeds of the peers")
	case c.BySpeed && cfg.Balancing.Policy == "equal":
		return errors.New("local: BySpeed is set with Balancing.Policy \"equal\", with which shares do not follow speeds: choose another policy")
	case cfg.Growth != (trainer.Growth{}):
		return errors.New("local: trainer.Growth is set: leave it out, as local steps have no gradient of a batch")
	case cfg.Gradients.Delay:
		return errors.New("local: trainer.Gradients.Delay is set: set local.Config.Delay instead")
	case !(cfg.Gradients.Clip >= 0):
		return fmt.Errorf("local: Gradients.Clip is %v, want 0 or more", cfg.Gradients.Clip)
	}
	if err := cfg.Optimizer.Check(); err != nil {
		return fmt.Errorf("local: local steps: %w", err)
	}
	if err := c.Outer.Check(); err != nil {
		return fmt.Errorf("local: Outer: %w", err)
	}
	return nil
}

// settings lists the settings that peers compare in addition to the trainer's own, which cover
// the sizes and the outer optimizer.
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
		{Name: "local optimizer", Value: fmt.Sprintf("%T%+v, clip %v", cfg.Optimizer, cfg.Optimizer, cfg.Gradients.Clip)},
		{Name: "local schedule", Value: fmt.Sprintf("%016x", rates.Sum64()),
			Text: fmt.Sprintf("%.4g, %.4g, %.4g at steps 1, %d, %d", cfg.Schedule(1), cfg.Schedule((1+last)/2), cfg.Schedule(last), (1+last)/2, last)},
	}
}
