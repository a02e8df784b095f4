package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// specVariable is the environment variable with the spec of the program, as JSON. If it is set, the test binary runs as a peer.
const specVariable = "CHAOS_SPEC"

// Unless its spec has other values, a job has a network of 10,060 parameters and steps of 20
// microbatches.
const (
	inputs, hidden, classes = 64, 134, 10
	microbatch              = 4
	globalBatch             = 20 * microbatch
)

// spec configures the program.
type spec struct {
	Samples int   // in the data set
	Hidden  int   // units of the hidden layer, 75 parameters each; 0 means hidden
	Batch   int   // samples in a step; 0 means globalBatch
	Passes  int   // length of the job in passes, if Steps is 0
	Steps   int64 // length of the job in steps
	Exact   bool
	// Pace is the time for a microbatch. The program sleeps for most of this time, so that steps
	// take the same time on a loaded machine, unless the machine is overloaded.
	Pace time.Duration
	// Release is the path of a file. When the file exists, steps are as fast as possible.
	Release string
	// Late is the longest time of a process before Init. It takes a random part of it.
	Late               time.Duration
	Checkpoint, Resume string // folders
	Calls              bool   // the program does not train, but makes collective calls until the file Release exists
	Idle               bool   // the program joins and waits until the file Release exists
	Ballast            int    // memory that the program holds, in MiB
}

// hold returns memory of the given size, in MiB, of which the process has every page.
func hold(mb int) []byte {
	b := make([]byte, mb<<20)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	return b
}

// batch returns the number of samples in a step.
func (s spec) batch() int { return cmp.Or(s.Batch, globalBatch) }

// released reports whether the file Release exists.
func (s spec) released() bool {
	_, err := os.Stat(s.Release)
	return err == nil
}

// stepPace returns the Pace with which steps of n peers take about d.
func stepPace(d time.Duration, n int) time.Duration {
	return d * time.Duration(n) * microbatch / globalBatch
}

// play is the main function of the program. It returns the exit status.
func play(text string) int {
	var s spec
	err := json.Unmarshal([]byte(text), &s)
	switch {
	case err != nil:
	case s.Idle:
		err = idle(context.Background(), s)
	case s.Calls:
		err = callLoop(context.Background(), s)
	default:
		err = train(context.Background(), s)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, elastic.ErrLeft):
		fmt.Println("has left:", err)
		return 0
	case errors.Is(err, elastic.ErrQuorum):
		fmt.Println("gives up:", err)
		return launch.StatusQuorum
	}
	fmt.Println("error:", err)
	return 1
}

// train trains the network as a peer of the job, until the training ends.
func train(ctx context.Context, s spec) error {
	stop := answer()
	defer stop()
	<-time.After(rand.N(s.Late + 1))
	ballast := hold(s.Ballast)
	defer runtime.KeepAlive(ballast)
	group, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	network, err := nn.MLP(patterns(s.Samples), nn.Shape{C: 1, H: 1, W: inputs}, []int{cmp.Or(s.Hidden, hidden)}, classes, 1)
	if err != nil {
		return errors.Join(err, group.Close())
	}
	model := &paced{spec: s}
	cfg := trainer.Config{
		Samples: s.Samples, GlobalBatch: s.batch(), Microbatch: microbatch, Passes: s.Passes, Steps: s.Steps, Seed: 1,
		Optimizer: optim.SGD{Momentum: 0.9}, Schedule: optim.Constant(0.01), Gradients: trainer.Gradients{Exact: s.Exact},
		Balancing:  trainer.Balancing{Admit: trainer.AdmitAlways}, // a newcomer is admitted even if it does not shorten steps
		Checkpoint: trainer.Checkpoint{Dir: s.Checkpoint, Resume: s.Resume},
		Hooks:      trainer.Hooks{OnBegin: model.begin, Log: func(line string) { fmt.Println(line) }},
	}
	if s.Checkpoint != "" {
		cfg.Checkpoint.EverySteps = 10
	}
	return errors.Join(trainer.Run(ctx, group, model.slowed(network.Model()), cfg), group.Close())
}

// patterns is a data set that needs no memory. Its value is the number of samples. A sample is the
// pattern of its class with noise, both determined by its index.
type patterns int

// Len implements nn.Data.
func (p patterns) Len() int { return int(p) }

// Sample implements nn.Data.
func (p patterns) Sample(dst []float32, i int) int {
	class := i % classes
	noise := uint64(i)*0x9e3779b97f4a7c15 + 1
	for k := range dst {
		noise = noise*6364136223846793005 + 1442695040888963407
		dst[k] = float32(noise>>40)/(1<<24) - 0.5
		if k%classes == class {
			dst[k]++
		}
	}
	return class
}

// paced makes each microbatch of a model take a certain time. It is not safe for concurrent use.
type paced struct {
	spec spec
	fast bool
	free time.Time // time before which the last microbatch must not end
}

// begin is called before each step.
func (p *paced) begin(int64) {
	p.free = time.Now()
	p.fast = p.fast || p.spec.released()
}

// slowed returns a model that computes like m and then sleeps. Microbatch i of a step ends i times
// Pace after the beginning of the step, so that delays of timers do not add up.
func (p *paced) slowed(m trainer.Model) trainer.Model {
	gradient := m.Gradient
	m.MaxSamples, m.Waits = 0, false
	m.Gradient = func(b *trainer.Batch) (float64, error) {
		loss, err := gradient(b.Wrap(func(g *trainer.Gate) { g.Done = nil }))
		if p.free = p.free.Add(p.spec.Pace); err == nil && !p.fast {
			<-time.After(time.Until(p.free))
		}
		return loss, err
	}
	return m
}

// answer starts a goroutine that prints the resources of the process at each SIGUSR1. The returned
// function stops the goroutine.
func answer() (stop func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGUSR1)
	var work sync.WaitGroup
	work.Go(func() {
		for range ch {
			debug.FreeOSMemory()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Printf("census pid=%d goroutines=%d heap=%d\n", os.Getpid(), runtime.NumGoroutine(), m.HeapAlloc)
		}
	})
	return func() {
		signal.Stop(ch)
		close(ch)
		work.Wait()
	}
}
