// Command bench-train compares the time of a training step with that of PyTorch:
//
//	go run ./scripts/bench-train [--python PYTHON] [--rounds N] [--batch N] [--peers N]
//
// It trains the MLP 784-256-10 and the convolutional network of examples/mnist, with one peer on one
// thread, and the same networks with PyTorch on one thread. With --peers 2 it starts a job of two
// processes, and PyTorch has as many with DistributedDataParallel over Gloo; the batch stays that of
// all. Both sides take turns, each in several rounds, as the speed of a machine changes with its
// load. The table has the medians of the rounds. The ratio of processor times suffers least from
// other programs on the machine; with several processes it is that of the first ones.
//
// Without a Python that has torch there is nothing to compare with: the command says so and ends
// with status 0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/idx"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
	"github.com/elrun/elrun/transport/mem"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench-train:", err)
		os.Exit(1)
	}
}

// options are the arguments of the command.
type options struct {
	data, python  string
	rounds, batch int
	peers         int
	peer, result  string // in a peer of a job: the network to train, and a file for the times
}

// run measures both sides and prints a table.
func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bench-train", flag.ContinueOnError)
	flags.StringVar(&o.data, "data", "data/mnist", "folder with the files of MNIST, from make data")
	flags.StringVar(&o.python, "python", "python3", "the Python that has torch")
	flags.IntVar(&o.rounds, "rounds", 7, "rounds of each side and network")
	flags.IntVar(&o.batch, "batch", 512, "samples of a step")
	flags.IntVar(&o.peers, "peers", 1, "processes of each side")
	flags.StringVar(&o.peer, "peer", "", "train this network as a peer; the command itself starts such processes")
	flags.StringVar(&o.result, "result", "", "file for the times of a peer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.rounds < 1 || o.batch < 1 || o.peers < 1 || o.peers > o.batch {
		return errors.New("--rounds, --batch and --peers: want at least 1, and no more peers than samples")
	}
	if o.peer != "" {
		return o.trainAsPeer(ctx)
	}
	if err := o.torch(ctx, "-c", "import torch").Run(); err != nil {
		fmt.Fprintf(out, "bench-train: no comparison: %s cannot import torch (%v): pip install torch, then make bench-train PYTHON=FILE\n", o.python, err)
		return nil
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one thread, as PyTorch
	return o.compare(ctx, out)
}

// torch returns a call of Python without the settings of OpenBLAS that make it slow on processors
// that it does not know.
func (o options) torch(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, o.python, args...)
	c.Env = slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "OPENBLAS_CORETYPE=") || strings.HasPrefix(s, "OPENBLAS_L2_SIZE=")
	})
	return c
}

// network is a network to train.
type network struct {
	name  string
	steps int // of a round
	make  func(data *idx.Set) (*nn.Network, error)
}

// networks returns the networks of the table.
func networks() []network {
	in := nn.Shape{C: 1, H: 28, W: 28}
	return []network{
		{"mlp", 120, func(s *idx.Set) (*nn.Network, error) { return nn.MLP(s, in, []int{256}, 10, 1) }},
		{"cnn", 40, func(s *idx.Set) (*nn.Network, error) { return nn.CNN(s, in, []int{8, 16}, 128, 10, 1) }},
	}
}

// warm is the number of steps at the start of a round that do not count.
const warm = 10

// times are the medians of a round: milliseconds of a step, and the loss of the last one.
type times struct{ wall, processor, loss float64 }

// compare lets the sides take turns.
func (o options) compare(ctx context.Context, out io.Writer) error {
	data, err := idx.Open(o.data, "train", 10)
	if err != nil {
		return fmt.Errorf("%w: run make data", err)
	}
	defer data.Close()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "network\telrun ms\ttorch ms\tratio\tratio of processor time\tloss of elrun\tof torch")
	for _, n := range networks() {
		var own, other []times
		for range o.rounds {
			t, err := o.trainOwn(ctx, n, data)
			if err != nil {
				return fmt.Errorf("%s: elrun: %w", n.name, err)
			}
			own = append(own, t)
			if t, err = o.trainTorch(ctx, n); err != nil {
				return fmt.Errorf("%s: torch: %w", n.name, err)
			}
			other = append(other, t)
		}
		fmt.Fprintln(w, row(n.name, own, other))
	}
	return w.Flush()
}

// row returns a row of the table. A ratio is the median of the ratios of the rounds.
func row(name string, own, other []times) string {
	var walls, otherWalls, ratios, processors []float64
	for i, t := range own {
		walls, otherWalls = append(walls, t.wall), append(otherWalls, other[i].wall)
		ratios = append(ratios, t.wall/other[i].wall)
		processors = append(processors, t.processor/other[i].processor)
	}
	last := len(own) - 1
	return fmt.Sprintf("%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.3f\t%.3f", name, median(walls), median(otherWalls),
		median(ratios), median(processors), own[last].loss, other[last].loss)
}

// median returns the median of v, which must not be empty.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// trainTorch runs a round of PyTorch. The first of its processes prints the times.
func (o options) trainTorch(ctx context.Context, n network) (t times, err error) {
	dir, err := os.MkdirTemp("", "bench-train")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel() // ends the others when one fails
	start := func(rank int) *exec.Cmd {
		c := o.torch(ctx, "scripts/bench-train/pytorch.py", o.data, n.name, fmt.Sprint(o.batch), fmt.Sprint(n.steps), fmt.Sprint(warm),
			fmt.Sprint(o.peers), fmt.Sprint(rank), filepath.Join(dir, "store"))
		c.Stderr = os.Stderr
		return c
	}
	for rank := 1; rank < o.peers; rank++ {
		others.Go(func() {
			if err := start(rank).Run(); err != nil {
				cancel()
			}
		})
	}
	printed, err := start(0).Output()
	if err != nil {
		return t, err
	}
	if _, err := fmt.Sscan(string(printed), &t.wall, &t.processor, &t.loss); err != nil {
		return t, fmt.Errorf("%q is no result: %w", printed, err)
	}
	return t, nil
}

// trainOwn runs a round of elrun: in this process, or as a job of several.
func (o options) trainOwn(ctx context.Context, n network, data *idx.Set) (t times, err error) {
	if o.peers > 1 {
		return o.startPeers(ctx, n)
	}
	self := elastic.Member{ID: "self"}
	group, err := elastic.Join(ctx, elastic.Config{Endpoint: mem.NewNetwork().Endpoint(self), Peers: []elastic.Member{self}})
	if err != nil {
		return t, err
	}
	defer group.Close()
	return o.train(ctx, group, n, data)
}

// startPeers runs a round as a job of processes of this program.
func (o options) startPeers(ctx context.Context, n network) (t times, err error) {
	dir, err := os.MkdirTemp("", "bench-train")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	result := filepath.Join(dir, "times")
	ended, err := launch.Run(ctx, launch.Options{Program: self, Peers: o.peers, Output: launch.Output{Stdout: io.Discard, Stderr: os.Stderr},
		Args: []string{"--data", o.data, "--batch", fmt.Sprint(o.batch), "--peer", n.name, "--result", result}})
	if err != nil {
		return t, err
	}
	printed, err := os.ReadFile(result)
	if err != nil {
		return t, fmt.Errorf("the peers ended with %+v: %w", ended, err)
	}
	_, err = fmt.Sscan(string(printed), &t.wall, &t.processor, &t.loss)
	return t, err
}

// trainAsPeer takes part in a job of startPeers. The peer of index 0 writes its times.
func (o options) trainAsPeer(ctx context.Context) error {
	runtime.GOMAXPROCS(1)
	at := slices.IndexFunc(networks(), func(n network) bool { return n.name == o.peer })
	if at < 0 {
		return fmt.Errorf("--peer %s: no such network", o.peer)
	}
	data, err := idx.Open(o.data, "train", 10)
	if err != nil {
		return err
	}
	defer data.Close()
	group, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	t, err := o.train(ctx, group, networks()[at], data)
	if err == nil && group.Self().Index == 0 {
		err = os.WriteFile(o.result, fmt.Appendln(nil, t.wall, t.processor, t.loss), 0o600)
	}
	return errors.Join(err, group.Close())
}

// train trains a network in a group.
func (o options) train(ctx context.Context, group *elastic.Group, n network, data *idx.Set) (t times, err error) {
	model, err := n.make(data)
	if err != nil {
		return t, err
	}
	var walls, processors []float64
	began, used := time.Now(), processorTime()
	err = trainer.Run(ctx, group, model.Model(), trainer.Config{
		Samples: data.Len(), GlobalBatch: o.batch, Steps: int64(n.steps), Seed: 1,
		Optimizer: optim.SGD{Momentum: 0.9, Nesterov: true}, Schedule: optim.Constant(0.05),
		Hooks: trainer.Hooks{OnStep: func(r trainer.StepReport) {
			now, usedNow := time.Now(), processorTime()
			if r.Step > warm {
				walls = append(walls, milliseconds(now.Sub(began)))
				processors = append(processors, milliseconds(usedNow-used))
			}
			began, used, t.loss = now, usedNow, r.Loss
		}},
	})
	if err != nil {
		return t, err
	}
	t.wall, t.processor = median(walls), median(processors)
	return t, nil
}

// milliseconds returns d in milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// processorTime returns the processor time of this process. Getrusage of the own process never
// fails.
func processorTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
