package netchaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// The names with Variable are environment variables that configure a role. The other constants are
// values of the roles.
const (
	hostVariable    = "NETCHAOS_HOST"    // name of the host
	paceVariable    = "NETCHAOS_PACE"    // time for a microbatch
	varyVariable    = "NETCHAOS_VARY"    // ratio of the longest step to the shortest; 1 for equal steps
	slowVariable    = "NETCHAOS_SLOW"    // local index of a peer that is five times as slow
	stepsVariable   = "NETCHAOS_STEPS"   // number of steps
	neuronsVariable = "NETCHAOS_NEURONS" // neurons of the hidden layer
	batchVariable   = "NETCHAOS_BATCH"   // microbatches in a step
	ballastVariable = "NETCHAOS_BALLAST" // memory that the process holds, in MiB
	narrow          = 32                 // neurons, for tests in which the size of messages does not matter
	hostRole        = "host"             // sets the host name and runs another program
	straggler       = 5                  // factor by which a slow peer is slower
	microbatches    = 20                 // in a step, unless the settings say otherwise
	microbatch      = 4                  // samples in a microbatch
	samples         = 960                // in a pass; a multiple of a step's samples, so that all steps have the same length
	endless         = int64(1) << 40     // number of steps in a job that a signal ends
	waitLimit       = 10 * time.Minute   // longer than a test waits for anything
)

// play runs the main function of a role and returns the exit status.
func play(role string) int {
	roles := map[string]func(context.Context) error{
		hostRole: becomeHost, "train": train, "burn": burn, "member": takePart, "ringer": timeRings, "overlap": overlap, "rounds": takeRounds, "sites": sumAgain, "lossy": passRound, pmpRole: mapPorts,
	}
	f, ok := roles[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "no role %q\n", role)
		return 2
	}
	err := f(context.Background())
	switch {
	case err == nil, errors.Is(err, elastic.ErrLeft):
		return 0
	case errors.Is(err, elastic.ErrQuorum):
		fmt.Println("gives up:", err)
		return launch.StatusQuorum
	}
	fmt.Println("error:", err)
	return 1
}

// becomeHost sets the host name of its UTS namespace. Then it runs the command in its arguments, in
// the role of thenVariable.
func becomeHost(context.Context) error {
	if err := syscall.Sethostname([]byte(os.Getenv(hostVariable))); err != nil {
		return fmt.Errorf("set the host's name: %w", err)
	}
	args := os.Args[1:]
	if err := os.Setenv(roleVariable, os.Getenv(thenVariable)); err != nil {
		return err
	}
	return fmt.Errorf("run %v: %w", args, syscall.Exec(args[0], args, os.Environ()))
}

// thenVariable is the environment variable with the role of the program that becomeHost runs.
const thenVariable = "NETCHAOS_THEN"

// burn keeps one core busy until it is killed.
func burn(context.Context) error {
	for x := uint64(1); ; x = x*6364136223846793005 + 1 {
		if x == 0 { // never true; keeps the compiler from removing the loop
			return errors.New("x is even")
		}
	}
}

// train trains a small network in steps of a given length.
func train(ctx context.Context) error {
	mb, _ := strconv.Atoi(os.Getenv(ballastVariable)) // 0 if it is not set
	ballast := make([]byte, mb<<20)
	for i := 0; i < len(ballast); i += os.Getpagesize() {
		ballast[i] = 1
	}
	defer runtime.KeepAlive(ballast)
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	neurons, err := strconv.Atoi(os.Getenv(neuronsVariable))
	if err != nil {
		return fmt.Errorf("%s: %w", neuronsVariable, err)
	}
	m, err := network(neurons)
	if err != nil {
		return err
	}
	pace, err := time.ParseDuration(os.Getenv(paceVariable))
	if err != nil {
		return fmt.Errorf("%s: %w", paceVariable, err)
	}
	if os.Getenv(slowVariable) == os.Getenv("ELRUN_INDEX") {
		pace *= straggler
	}
	vary, err := strconv.Atoi(os.Getenv(varyVariable))
	if err != nil {
		return fmt.Errorf("%s: %w", varyVariable, err)
	}
	batch, err := strconv.Atoi(os.Getenv(batchVariable))
	if err != nil {
		return fmt.Errorf("%s: %w", batchVariable, err)
	}
	steps, err := strconv.ParseInt(os.Getenv(stepsVariable), 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", stepsVariable, err)
	}
	p := &paced{pace: pace, vary: int64(vary)}
	cfg := training(steps, batch)
	cfg.Hooks.OnBegin = p.begin
	return trainer.Run(ctx, g, p.slowed(m.Model()), cfg)
}

// network returns a multi-layer perceptron, with a hidden layer of the given size, on generated samples.
func network(hidden int) (*nn.Network, error) {
	var data nn.Table
	const inputs, classes = 16, 4
	for i := range samples {
		x := make([]float32, inputs)
		for k := range x {
			x[k] = float32(math.Sin(float64(i*(k+1)) + float64(i%classes*k)))
		}
		data.Inputs, data.Classes = append(data.Inputs, x), append(data.Classes, i%classes)
	}
	return nn.MLP(data, nn.Shape{C: inputs, H: 1, W: 1}, []int{hidden}, classes, 1)
}

// training returns the configuration of the role train and of replay, with which the weights after
// each step are equal bit for bit. A step has batch microbatches.
func training(steps int64, batch int) trainer.Config {
	return trainer.Config{Samples: samples, GlobalBatch: batch * microbatch, Microbatch: microbatch, Steps: steps, Seed: 1,
		Balancing: trainer.Balancing{Admit: trainer.AdmitAlways}, // a newcomer is admitted even if it does not shorten steps
		Optimizer: optim.SGD{Momentum: 0.9}, Schedule: optim.Constant(0.01), Gradients: trainer.Gradients{Exact: true}}
}

// paced makes a model slower.
type paced struct {
	pace time.Duration // time for a microbatch
	vary int64         // ratio of the longest step to the shortest
	step int64         // number of the present step
}

// begin records the number of the next step.
func (p *paced) begin(step int64) { p.step = step }

// slowed returns a model that computes like m, and then waits until the time for the microbatch has
// passed.
func (p *paced) slowed(m trainer.Model) trainer.Model {
	gradient := m.Gradient
	m.MaxSamples, m.Waits = 0, false
	m.Gradient = func(b *trainer.Batch) (float64, error) {
		end := time.After(p.pace * time.Duration(1+p.step*7%p.vary))
		loss, err := gradient(b.Wrap(func(g *trainer.Gate) { g.Done = nil }))
		<-end
		return loss, err
	}
	return m
}

// replay trains the network in this process alone, without waiting. It returns the digest of each step, beginning with step 1.
func replay(ctx context.Context, s settings, steps int64) ([]string, error) {
	g, err := launch.Init(ctx)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	m, err := network(s.layer())
	if err != nil {
		return nil, err
	}
	var digests []string
	cfg := training(steps, s.size())
	cfg.Hooks.OnStep = func(r trainer.StepReport) { digests = append(digests, r.Digest) }
	if err := trainer.Run(ctx, g, m.Model(), cfg); err != nil {
		return nil, err
	}
	return digests, nil
}
