package main

import (
	"fmt"
	"math"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/idx"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// options is the command line.
type options struct {
	Data        string  `default:"data/mnist" placeholder:"DIR" help:"Folder with the four files of MNIST, gzipped or plain (default ${default})."`
	Model       string  `default:"mlp" enum:"softmax,mlp,cnn" help:"softmax, mlp or cnn (default ${default})."`
	Passes      int     `xor:"length" placeholder:"N" help:"Passes over the training set (default 10; 3 for cnn)."`
	Steps       int64   `xor:"length" placeholder:"N" help:"Steps, instead of passes."`
	GlobalBatch int     `default:"512" placeholder:"N" help:"Samples of a step, over all peers (default ${default})."`
	Microbatch  int     `default:"16" placeholder:"N" help:"Samples that a peer computes at once (default ${default})."`
	LR          float64 `name:"lr" placeholder:"F" help:"Largest learning rate (default: the model's)."`
	Optimizer   string  `default:"auto" enum:"auto,sgd,adam,adamw" help:"sgd, with Nesterov momentum 0.9, adam, adamw, or auto: adam for cnn, else sgd (default ${default})."`
	Seed        uint64  `default:"1" placeholder:"N" help:"Seed of the weights and of the order of the samples (default ${default})."`
}

// check reports values that no run can have.
func (o options) check() error {
	switch {
	case o.Passes < 0:
		return fmt.Errorf("--passes: %d is negative", o.Passes)
	case o.Steps < 0:
		return fmt.Errorf("--steps: %d is negative", o.Steps)
	case o.GlobalBatch < 1:
		return fmt.Errorf("--global-batch: %d is less than 1", o.GlobalBatch)
	case o.Microbatch < 1:
		return fmt.Errorf("--microbatch: %d is less than 1", o.Microbatch)
	case !(o.LR >= 0) || math.IsInf(o.LR, 0):
		return fmt.Errorf("--lr: %v is negative or not finite", o.LR)
	}
	return nil
}

// MNIST has ten digits.
const classes = 10

// network builds the model for the training set.
func (o options) network(set *idx.Set) (*nn.Network, error) {
	in := nn.Shape{C: 1, H: set.Rows, W: set.Cols}
	switch o.Model {
	case "softmax":
		return nn.Softmax(set, in, classes, o.Seed)
	case "cnn":
		return nn.CNN(set, in, []int{8, 16}, 128, classes, o.Seed)
	}
	return nn.MLP(set, in, []int{256}, classes, o.Seed)
}

// config makes the part of the trainer's configuration that the command line
// decides. The learning rate warms up over a few steps, as the first
// gradients are large, and falls to nothing at the end.
func (o options) config(samples int) trainer.Config {
	c := trainer.Config{
		Samples: samples, GlobalBatch: o.GlobalBatch, Microbatch: o.Microbatch,
		Passes: o.Passes, Steps: o.Steps, Seed: o.Seed, Optimizer: o.optimizer(),
	}
	if c.Passes == 0 && c.Steps == 0 {
		c.Passes = o.defaultPasses()
	}
	rate := o.LR
	if rate == 0 {
		rate = o.defaultRate()
	}
	total := c.TotalSteps()
	warm := min(20, total/10)
	c.Schedule = optim.Warmup(warm, optim.Cosine(rate, 0, total-warm+1))
	return c
}

// optimizer returns the rule. Adam learns fastest, but makes much of the smallest
// differences between gradients. With SGD the rounding that depends on the number of
// peers stays rounding.
func (o options) optimizer() optim.Optimizer {
	switch o.Optimizer {
	case "adam":
		return optim.Adam{}
	case "adamw":
		return optim.AdamW{WeightDecay: 0.01}
	case "auto":
		if o.Model == "cnn" {
			return optim.Adam{}
		}
	}
	return optim.SGD{Momentum: 0.9, Nesterov: true}
}

// defaultPasses is a compromise between accuracy and patience: more passes still
// help each model a little.
func (o options) defaultPasses() int {
	if o.Model == "cnn" {
		return 3
	}
	return 10
}

// defaultRate suits batches of 512; SGD needs larger rates than Adam.
func (o options) defaultRate() float64 {
	if _, sgd := o.optimizer().(optim.SGD); sgd {
		return 0.2
	}
	return 0.01
}
