package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// specVariable holds the spec of the program, as JSON. A test binary that has it is a
// peer.
const specVariable = "CHAOS_SPEC"

// The shape of every job: a network of 10,060 parameters and steps of 20 microbatches, unless
// the spec wants more.
const (
	inputs, hidden, classes = 64, 134, 10
	microbatch              = 4
	globalBatch             = 20 * microbatch
)

// spec says what the program trains.
type spec struct {
	Samples int   // of the data set
	Hidden  int   // units of the network's hidden layer, 75 parameters each; 0 means hidden
	Batch   int   // samples of a step; 0 means globalBatch
	Passes  int   // over the data, or else
	Steps   int64 // in all
	Exact   bool
	// Pace is how long a microbatch takes. It is slept, so that a step takes as long on a
	// loaded machine, as long as it is not overloaded.
	Pace time.Duration
	// Hurry names a file: when it is there steps are as fast as they can be.
	Hurry              string
	Checkpoint, Resume string // folders
	Calls              bool   // the program trains nothing: it makes calls, until there is Hurry
	Idle               bool   // it joins and waits, until there is Hurry
}

// batch returns the samples of a step.
func (s spec) batch() int { return cmp.Or(s.Batch, globalBatch) }

// hurried reports whether there is the file of Hurry.
func (s spec) hurried() bool {
	_, err := os.Stat(s.Hurry)
	return err == nil
}

// stepPace is the Pace at which peers of a group of n take steps of about d.
func stepPace(d time.Duration, n int) time.Duration {
	return d * time.Duration(n) * microbatch / globalBatch
}

// play is the program; it returns the exit status.
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

// train takes part in the training until it ends.
func train(ctx context.Context, s spec) error {
	stop := answer()
	defer stop()
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
		Optimizer: optim.SGD{Momentum: 0.9}, Schedule: optim.Constant(0.01), Exact: s.Exact, OnBegin: model.begin,
		Admit:      trainer.AdmitAlways, // who joins is to be in, whether it helps or not
		Checkpoint: trainer.Checkpoint{Dir: s.Checkpoint, Resume: s.Resume},
		Log:        func(line string) { fmt.Println(line) },
	}
	if s.Checkpoint != "" {
		cfg.Checkpoint.EverySteps = 10
	}
	return errors.Join(trainer.Run(ctx, group, model.slowed(network.Model()), cfg), group.Close())
}

// patterns is a data set of so many samples that needs no memory: each is a pattern of
// its class with noise, all of them functions of its index.
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

// paced makes each microbatch of a model take its time. It is not safe for concurrent use.
type paced struct {
	spec  spec
	hurry bool
	free  time.Time // when the next microbatch may end that has been slept for
}

// begin is called before each step.
func (p *paced) begin(int64) {
	p.free = time.Now()
	p.hurry = p.hurry || p.spec.hurried()
}

// slowed computes as m does and then waits. The time is counted from the beginning of the step,
// so that timers that are late do not add up.
func (p *paced) slowed(m trainer.Model) trainer.Model {
	gradient := m.Gradient
	m.MaxSamples, m.Waits = 0, false
	m.Gradient = func(b *trainer.Batch) (float64, error) {
		loss, err := gradient(b.Wrap(func(g *trainer.Gate) { g.Done = nil }))
		if p.free = p.free.Add(p.spec.Pace); err == nil && !p.hurry {
			<-time.After(time.Until(p.free))
		}
		return loss, err
	}
	return m
}

// answer prints what the process holds whenever it gets SIGUSR1, until the function that
// it returns is called.
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
