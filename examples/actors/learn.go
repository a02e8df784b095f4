package main

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// machines is the number of slot machines.
const machines = 4

// payout returns the mean payout of machine i. Actors and learners do not know it.
func payout(i int) float64 { return [machines]float64{0.2, 0.5, 0.8, 0.4}[i] }

// Policy chooses a machine with probabilities softmax(Weights).
type Policy struct {
	Step    int64
	Weights [machines]float64
	Final   bool // the learners have finished
}

// chances returns the probabilities of the machines.
func (p Policy) chances() (c [machines]float64) {
	sum := 0.0
	for i, w := range p.Weights {
		c[i] = math.Exp(w)
		sum += c[i]
	}
	for i := range c {
		c[i] /= sum
	}
	return c
}

// best returns the machine with the highest probability.
func (p Policy) best() (machine int, chance float64) {
	for i, c := range p.chances() {
		if c > chance {
			machine, chance = i, c
		}
	}
	return machine, chance
}

// round is the number of games that an actor plays with one policy.
const round = 16

// play is an actor: it plays until the learners have finished.
func (h handles) play(ctx context.Context, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 0))
	for more := true; more; {
		policy, err := h.policy.Call(ctx, 0)
		if err != nil || policy.Final {
			return err
		}
		var p Plays
		chances := policy.chances()
		for range round {
			p.Games = append(p.Games, playOnce(random, chances))
		}
		if more, err = h.put.Call(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// playOnce plays one game with the given probabilities of the machines.
func playOnce(random *rand.Rand, chances [machines]float64) Play {
	x, machine := random.Float64(), 0
	for machine < machines-1 && x >= chances[machine] {
		x -= chances[machine]
		machine++
	}
	return Play{Machine: machine, Chances: chances, Paid: payout(machine) + 0.1*random.NormFloat64()}
}

const (
	batch = 64  // games in a step, over all learners
	rate  = 0.5 // learning rate
	usual = 0.5 // baseline of the payout
)

// learn is a learner: it trains until the given number of steps is done and returns the policy.
// The games of a failed step do not count.
func (h handles) learn(ctx context.Context, g *elastic.Group, steps int64) (Policy, error) {
	var p Policy
	for t := range g.Steps(ctx, elastic.Vectors(&p.Step, p.Weights[:]), steps) {
		lo, hi := t.Part(batch)
		games, err := h.take.Call(ctx, hi-lo)
		if err != nil {
			t.Fail(err)
			continue
		}
		sum := gradient(games.Games)
		if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[float64]); err != nil {
			continue // the step is tried again
		}
		for i := range p.Weights {
			p.Weights[i] += rate * sum[i] / batch
		}
		p.Step++
		if t.Rank == 0 {
			h.learnt.Go(ctx, p) // no wait: actors may use an older policy
		}
	}
	if err := g.Err(); err != nil {
		return p, err
	}
	p.Final = true
	_, err := h.learnt.Call(ctx, p)
	return p, err
}

// gradient returns the sum of the policy gradients over games (REINFORCE, Williams 1992).
func gradient(games []Play) []float64 {
	sum := make([]float64, machines)
	for _, g := range games {
		for i := range sum {
			chosen := 0.0
			if i == g.Machine {
				chosen = 1
			}
			sum[i] += (g.Paid - usual) * (chosen - g.Chances[i])
		}
	}
	return sum
}
