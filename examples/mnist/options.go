package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/idx"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// options declares the flags of the command line.
type options struct {
	Data        string  `default:"data/mnist" placeholder:"DIR" help:"Folder with the four files of MNIST. Plain ones are mapped, gzipped ones unpacked into memory (default ${default})."`
	Model       string  `default:"mlp" enum:"softmax,mlp,cnn" help:"softmax, mlp or cnn (default ${default})."`
	Passes      int     `xor:"length" placeholder:"N" help:"Passes over the training set (default 10; 3 for cnn)."`
	Steps       int64   `xor:"length" placeholder:"N" help:"Steps, instead of passes."`
	GlobalBatch batches `default:"512" placeholder:"N[-MAX]" help:"Samples of a step, over all peers (default ${default}). With a range, as 128-1024, the batch doubles when the noise of the gradients shows that larger batches pay."`
	GrowthRate  string  `default:"linear" enum:"linear,adascale,sqrt" help:"With a range for --global-batch: how the learning rate follows the batch: linear, adascale, or sqrt, its square root (default ${default})."`
	Microbatch  int     `default:"16" placeholder:"N" help:"Samples of a microbatch, the unit of shares (default ${default})."`
	LR          float64 `name:"lr" placeholder:"F" help:"Largest learning rate (default: the model's)."`
	Optimizer   string  `default:"auto" enum:"auto,sgd,adam,adamw" help:"sgd, with Nesterov momentum 0.9, adam, adamw, or auto: adam for cnn, else sgd (default ${default})."`
	Seed        uint64  `default:"1" placeholder:"N" help:"Seed of the weights and of the order of the samples (default ${default})."`
	Hidden      int     `default:"256" placeholder:"N" help:"Units of the hidden layer of mlp (default ${default})."`
	Exact       bool    `help:"Sum gradients as integers: the weights have the same bits for any number of peers, whoever comes and goes."`
	Audit       float64 `placeholder:"RATE" env:"ELRUN_AUDIT" help:"With --exact: each peer computes the part of another peer again in this fraction of the steps, and compares bits. A peer that cheats, or has bad memory, is named and put out."`
	Local       int     `placeholder:"H" help:"Local steps: peers sum only after every H steps. Each microbatch of a step then begins a path of its own: H steps of --optimizer at the rate --lr."`
	Outer       *outer  `placeholder:"RATE,MOMENTUM" help:"With --local: rate and Nesterov momentum by which the mean of the paths is applied. 1,0 is plain averaging (default 0.7,0.9)."`
	Delay       bool    `help:"With --local: apply the mean of a round one round later, so that peers compute a round while they sum the round before."`
	BySpeed     bool    `help:"With --local: each peer has one path through its whole share, with as many local steps as its speed allows. Not with --exact."`
	Compress    string  `default:"none" placeholder:"CODING" help:"How gradients travel between peers: none, fp16, bf16, int8, or topk:F, which sends the fraction F of them that is largest, 0.01 if it is not given, or topk:F:2bit, which rounds them to 2 bits. What a coding loses is sent later (default ${default})."`

	Checkpoint      string `placeholder:"DIR" help:"Folder to save checkpoints in."`
	CheckpointEvery int64  `placeholder:"K" help:"Steps between checkpoints (default 100)."`
	Resume          string `placeholder:"DIR" help:"Go on from the newest complete checkpoint in DIR, with any number of peers."`
	EvalEvery       int64  `placeholder:"K" help:"Steps between two scores on the test set, of which each peer computes a part."`
	Save            string `placeholder:"FILE" help:"Write the trained parameters to FILE, as safetensors."`

	Balance  string `default:"auto" placeholder:"POLICY" help:"How shares follow the speeds of the peers: auto, equal, proportional, lbbsp-cpu, lbbsp-gpu or lbb (default ${default})."`
	MaxShare int    `placeholder:"N" help:"Most microbatches that this peer computes in a step, as long as the others can take the rest."`

	Steal string `default:"auto" enum:"auto,far,off" help:"auto lets a peer that is early compute microbatches that a late peer of its host has not begun, far one of any host; off (default ${default})."`

	Admit string `default:"helps" enum:"helps,always" help:"Which peers may join: helps (only peers that shorten the steps; other peers wait) or always (all peers) (default ${default})."`

	Pace time.Duration `placeholder:"D" help:"For tests: every sample takes at least D, as in 100us."`
	Slow slowdowns     `placeholder:"I:F[@S[-E]],..." help:"For tests: local peer I, or random for another one in each step, takes F times as long to compute, from step S to step E."`
}

// defaultCheckpointEvery is the default distance of checkpoints in steps, about one pass over
// MNIST.
const defaultCheckpointEvery = 100

// check returns an error for invalid values of flags, and for flags that do not fit together.
func (o options) check() error {
	switch {
	case o.Passes < 0:
		return fmt.Errorf("--passes: %d is negative", o.Passes)
	case o.Steps < 0:
		return fmt.Errorf("--steps: %d is negative", o.Steps)
	case o.GrowthRate != trainer.GrowLinear && o.GlobalBatch.max == 0:
		return fmt.Errorf("--growth-rate: give --global-batch a range, as in 128-1024")
	case o.Local > 0 && o.GlobalBatch.max > 0:
		return fmt.Errorf("--global-batch: a range does not go with --local, whose steps have no gradient of a batch: give one number")
	case o.Microbatch < 1:
		return fmt.Errorf("--microbatch: %d is less than 1", o.Microbatch)
	case !(o.LR >= 0) || math.IsInf(o.LR, 0):
		return fmt.Errorf("--lr: %v is negative or not finite", o.LR)
	case o.Local < 0:
		return fmt.Errorf("--local: %d is negative", o.Local)
	case o.Outer != nil && o.Local == 0:
		return fmt.Errorf("--outer: add --local N, the number of local steps of a round")
	case o.Delay && o.Local == 0:
		return fmt.Errorf("--delay: add --local N, the number of local steps of a round")
	case o.BySpeed && o.Local == 0:
		return fmt.Errorf("--by-speed: add --local N, the number of local steps of a round")
	case !(o.Audit >= 0 && o.Audit <= 1):
		return fmt.Errorf("--audit: %v is no fraction of the steps, want 0 to 1", o.Audit)
	case o.Audit > 0 && !o.Exact:
		return fmt.Errorf("--audit: add --exact: only in exact mode does a part have the same bits at every peer that computes it")
	case o.BySpeed && o.Exact:
		return fmt.Errorf("--by-speed does not go with --exact, which needs the same number of steps on all paths: leave one of the two options out")
	case o.Hidden < 1:
		return fmt.Errorf("--hidden: %d is less than 1", o.Hidden)
	case o.CheckpointEvery < 0:
		return fmt.Errorf("--checkpoint-every: %d is negative", o.CheckpointEvery)
	case o.CheckpointEvery > 0 && o.Checkpoint == "":
		return fmt.Errorf("--checkpoint-every: add --checkpoint DIR")
	case o.EvalEvery < 0:
		return fmt.Errorf("--eval-every: %d is negative", o.EvalEvery)
	case o.MaxShare < 0:
		return fmt.Errorf("--max-share: %d is negative", o.MaxShare)
	case o.Pace < 0:
		return fmt.Errorf("--pace: %v is negative", o.Pace)
	}
	if _, err := loadbal.New(o.Balance); err != nil {
		return fmt.Errorf("--balance: %w", err)
	}
	coding, err := compress.Parse(o.Compress)
	if err != nil {
		return fmt.Errorf("--compress: %w", err)
	}
	if o.Exact && coding != nil {
		return fmt.Errorf("--compress: %s does not go with --exact: the result of compression depends on which peer computed which microbatches", o.Compress)
	}
	if o.GlobalBatch.max > 0 && coding != nil && coding.Sparse() {
		return fmt.Errorf("--global-batch: a range does not go with --compress %s, which hides the noise of the gradients: give one number", o.Compress)
	}
	return nil
}

// classes is the number of digits in MNIST.
const classes = 10

// network creates the model for a training set.
func (o options) network(set *idx.Set) (*nn.Network, error) {
	in := nn.Shape{C: 1, H: set.Rows, W: set.Cols}
	switch o.Model {
	case "softmax":
		return nn.Softmax(set, in, classes, o.Seed)
	case "cnn":
		return nn.CNN(set, in, []int{8, 16}, 128, classes, o.Seed)
	}
	return nn.MLP(set, in, []int{o.Hidden}, classes, o.Seed)
}

// config returns the part of the trainer's configuration that depends on the command line. The
// learning rate rises during a few steps, because the first gradients are large (warm-up), and
// falls to zero at the end.
func (o options) config(samples int) trainer.Config {
	c := trainer.Config{
		Samples: samples, GlobalBatch: o.GlobalBatch.first, Microbatch: o.Microbatch,
		Passes: o.Passes, Steps: o.Steps, Seed: o.Seed, Optimizer: o.optimizer(),
		Gradients:  trainer.Gradients{Exact: o.Exact, Audit: o.Audit, Compression: o.Compress},
		Balancing:  trainer.Balancing{Policy: o.Balance, MaxShare: o.MaxShare, Admit: o.Admit, Steal: o.Steal},
		Checkpoint: o.checkpoint(),
	}
	if o.GlobalBatch.max > 0 {
		c.Growth = trainer.Growth{Max: o.GlobalBatch.max, Rate: o.GrowthRate}
	}
	if c.Passes == 0 && c.Steps == 0 {
		c.Passes = o.defaultPasses()
	}
	total := c.TotalSteps()
	warm := min(20, total/10)
	c.Schedule = optim.Warmup(warm, optim.Cosine(o.rate(), 0, total-warm+1))
	return c
}

// settings returns the settings in which all peers must agree: the flags with their effective defaults, and the hash of the data.
// Messages show the folder of the data instead of its hash.
func (o options) settings(c trainer.Config) []elastic.Setting {
	rule := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", c.Optimizer), "optim."))
	s := []elastic.Setting{
		{Name: "--data", Value: c.DataHash, Text: fmt.Sprintf("%s with %d images", o.Data, c.Samples)},
		{Name: "--model", Value: o.Model},
		{Name: "--optimizer", Value: rule},
		{Name: "--lr", Value: fmt.Sprint(o.rate())},
		{Name: "--seed", Value: fmt.Sprint(o.Seed)},
		{Name: "--global-batch", Value: o.GlobalBatch.String()},
		{Name: "--microbatch", Value: fmt.Sprint(o.Microbatch)},
		{Name: "--exact", Value: fmt.Sprint(o.Exact)},
		{Name: "--audit", Value: fmt.Sprint(o.Audit)},
		{Name: "--local", Value: fmt.Sprint(o.Local)},
		{Name: "--outer", Value: fmt.Sprint(o.outer())},
		{Name: "--delay", Value: fmt.Sprint(o.Delay)},
		{Name: "--by-speed", Value: fmt.Sprint(o.BySpeed)},
		{Name: "--compress", Value: o.Compress},
		{Name: "--balance", Value: o.Balance},
	}
	if o.GrowthRate != trainer.GrowLinear {
		s = append(s, elastic.Setting{Name: "--growth-rate", Value: o.GrowthRate})
	}
	if o.Model == "mlp" {
		s = append(s, elastic.Setting{Name: "--hidden", Value: fmt.Sprint(o.Hidden)})
	}
	if c.Steps > 0 {
		return append(s, elastic.Setting{Name: "--steps", Value: fmt.Sprint(c.Steps)})
	}
	return append(s, elastic.Setting{Name: "--passes", Value: fmt.Sprint(c.Passes)})
}

// checkpoint returns the configuration of checkpoints.
func (o options) checkpoint() trainer.Checkpoint {
	c := trainer.Checkpoint{Dir: o.Checkpoint, EverySteps: o.CheckpointEvery, Resume: o.Resume}
	if c.Dir != "" && c.EverySteps == 0 {
		c.EverySteps = defaultCheckpointEvery
	}
	return c
}

// optimizer returns the optimizer. Adam learns fastest, but amplifies the smallest differences
// between gradients. With SGD, differences in rounding between numbers of peers stay small.
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

// defaultPasses returns the default number of passes, a compromise between accuracy and time: each
// model still improves a little with more passes.
func (o options) defaultPasses() int {
	if o.Model == "cnn" {
		return 3
	}
	return 10
}

// rate returns the maximum learning rate. The default suits batches of 512. Local steps use
// batches of one microbatch, for which SGD needs a lower rate. SGD needs a higher rate than Adam.
func (o options) rate() float64 {
	if o.LR != 0 {
		return o.LR
	}
	switch _, sgd := o.optimizer().(optim.SGD); {
	case sgd && o.Local > 0:
		return 0.05
	case sgd:
		return 0.2
	}
	return 0.01
}
