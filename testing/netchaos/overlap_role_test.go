package netchaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// overlapVariable is the environment variable with the task of the role overlap, as JSON.
const overlapVariable = "NETCHAOS_OVERLAP"

// These phases measure computation and communication separately, and both together.
const (
	alone = "alone" // a group of one, without communication
	wire  = "wire"  // two members, without computation
	both  = "both"
)

// overlapTask configures a process with the role overlap.
type overlapTask struct {
	Phase string
	Model string // mlp or cnn
	Share int    // samples that a peer computes in a step
	Cuts  int    // microbatches in a share
	Steps int64
	Exact bool
	// Hold delays the end of the backward pass until this host has sent nine tenths of the other
	// gradients.
	Hold bool
	// Ahead runs each process on a core of its own, with the highest priority.
	Ahead bool
}

// overlapResult is the output of the process, as JSON.
type overlapResult struct {
	Steps      []time.Duration // time of each step
	Waits      []time.Duration // communication time of each step that is not overlapped
	EarlySteps int             // steps that began before the previous one was committed
	Pieces     []piece         // pieces of gradients in the order of completion, with median times
	Needs      []piece         // parts of parameters in the order of first reads, with median times
	SHA256     string          // hash of the parameters at the end
}

// piece is a part of a parameter or of its gradient.
type piece struct {
	Param int
	From  int // first element
	Bytes int
	At    time.Duration // time since the beginning of the step
}

// end returns the index after the last element.
func (p piece) end() int { return p.From + p.Bytes/4 }

// pieces records when each part of some vectors is read or complete. A vector is divided into parts from its end to its
// beginning.
type pieces struct {
	left []int // by vector: number of elements that are not recorded yet
	all  []piece
}

// newPieces returns pieces for vectors that are as long as the parameters.
func newPieces(params []trainer.Param) (p pieces) {
	for _, v := range params {
		p.left = append(p.left, len(v.Data))
	}
	return p
}

// add records the part of vector i that begins at element from and ends at the previous part.
func (p *pieces) add(i, from int, at time.Duration) {
	p.all = append(p.all, piece{i, from, 4 * (p.left[i] - from), at})
	p.left[i] = from
}

// medians returns the pieces of a step with the medians of their times. All steps have the same
// pieces, except steps that a change of members interrupts. These have fewer pieces and do not
// count.
func medians(steps [][]piece) (all []piece) {
	whole := 0
	for _, s := range steps {
		whole = max(whole, len(s))
	}
	steps = slices.DeleteFunc(slices.Clone(steps), func(s []piece) bool { return len(s) < whole })
	for k := range whole {
		var at []time.Duration
		for _, s := range steps {
			at = append(at, s[k].At)
		}
		p := steps[0][k]
		p.At = median(at)
		all = append(all, p)
	}
	return all
}

// overlap is the role overlap: it trains a model and prints its measurements.
func overlap(ctx context.Context) error {
	var o order
	var task overlapTask
	if err := json.Unmarshal([]byte(os.Getenv(orderVariable)), &o); err != nil {
		return fmt.Errorf("%s: %w", orderVariable, err)
	}
	if err := json.Unmarshal([]byte(os.Getenv(overlapVariable)), &task); err != nil {
		return fmt.Errorf("%s: %w", overlapVariable, err)
	}
	if task.Ahead {
		if err := goAhead(o.Index % runtime.NumCPU()); err != nil {
			return err
		}
	}
	model, err := task.model()
	if err != nil {
		return err
	}
	g, peers, err := task.group(ctx, o)
	if err != nil {
		return err
	}
	defer g.Close()
	w := &watched{task: task}
	if err := trainer.Run(ctx, g, w.watch(model.Model()), w.config(peers)); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(w.result())
}

// group returns the group in which to train, and its size.
func (task overlapTask) group(ctx context.Context, o order) (*elastic.Group, int, error) {
	if task.Phase == alone {
		g, err := launch.Init(ctx)
		return g, 1, err
	}
	g, err := o.join(ctx)
	return g, o.First, err
}

// images is the number of different samples.
const images = 256

// model returns the model of the task. The cnn has about 1.1 MB, with dense layers after convolutions. The mlp has 2.9 MB in
// equal layers.
func (o overlapTask) model() (*nn.Network, error) {
	in := nn.Shape{C: 1, H: 28, W: 28}
	if o.Model == "mlp" {
		in = nn.Shape{C: 256, H: 1, W: 1}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var data nn.Table
	for i := range o.samples() {
		x := make([]float32, 0, in.Size())
		if i >= images {
			x = data.Inputs[i%images]
		}
		for len(x) < in.Size() {
			x = append(x, rng.Float32()-0.5)
		}
		data.Inputs, data.Classes = append(data.Inputs, x), append(data.Classes, i%10)
	}
	if o.Model == "mlp" {
		return nn.MLP(data, in, []int{448, 448, 448, 448}, 10, 1)
	}
	return nn.CNN(data, in, []int{16, 32}, 500, 10, 1)
}

// samples returns the size of a pass, which is enough for several steps of two peers.
func (o overlapTask) samples() int { return 16 * o.Share }

// goAhead binds this process to a core and gives it the highest priority. New threads inherit both from the threads that start
// them.
func goAhead(core int) error {
	const most = -20
	// If the kernel groups processes by session, a priority counts only within its session. The session then has a priority of
	// its own.
	if _, err := unix.Setsid(); err != nil {
		return fmt.Errorf("begin a session: %w", err)
	}
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(most)), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("come before other sessions: %w", err)
	}
	var set unix.CPUSet
	set.Set(core)
	for range 2 { // twice, because a thread that starts meanwhile is not in the first list
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list the threads: %w", err)
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err == nil {
				err = unix.SchedSetaffinity(tid, &set)
			}
			if err == nil {
				err = unix.Setpriority(unix.PRIO_PROCESS, tid, most)
			}
			if err != nil {
				return fmt.Errorf("move thread %s to core %d: %w", t.Name(), core, err)
			}
		}
	}
	return nil
}

// warmUp is the number of first steps that do not count, because memory, caches and TCP windows are
// not in their usual state yet.
const warmUp = 3

// watched records when the gradients of a model are complete.
type watched struct {
	task overlapTask

	begun      time.Time // when the present step began
	sent       int       // bytes that this host had sent before the present step
	done       int       // samples whose computation has begun or ended
	needs      pieces    // pieces of the first call
	pieces     pieces    // pieces of the last call
	held       error     // error of hold in the last call
	earlySteps int       // number of steps that began early

	// One element for each counted step.
	steps, waits []time.Duration
	all, read    [][]piece
	sum          string
}

// config returns the configuration of the job with this number of peers.
func (w *watched) config(peers int) trainer.Config {
	return trainer.Config{Samples: w.task.samples(), GlobalBatch: peers * w.task.Share, Microbatch: w.task.Share / w.task.Cuts,
		Steps: w.task.Steps, Gradients: trainer.Gradients{Exact: w.task.Exact},
		Balancing: trainer.Balancing{Policy: "equal"}, // both peers compute as much as a peer alone
		Optimizer: optim.SGD{Momentum: 0.9}, Schedule: optim.Constant(1e-4),
		Hooks: trainer.Hooks{OnBegin: w.begin, OnStep: w.stepped, Done: func(r trainer.Result) { w.sum = r.SHA256 }}}
}

// begin records the previous step, which has ended.
func (w *watched) begin(step int64) {
	now := time.Now()
	if step > warmUp+1 {
		w.steps, w.all, w.read = append(w.steps, now.Sub(w.begun)), append(w.all, w.pieces.all), append(w.read, w.needs.all)
	}
	w.begun, w.done = now, 0
	if w.task.Hold {
		w.sent, _ = sentBytes() // a lasting error also occurs in hold
	}
}

// stepped is called for each stable step.
func (w *watched) stepped(r trainer.StepReport) {
	if r.Step > warmUp {
		w.waits = append(w.waits, r.Comm)
	}
}

// watch wraps a model. The result computes what m computes, or nothing in a phase without computation. It records when
// parameters are read and gradients are complete.
func (w *watched) watch(m trainer.Model) trainer.Model {
	gradient := m.Gradient
	if w.task.Phase == wire {
		gradient = idle(m.Params)
	}
	m.Gradient = func(b *trainer.Batch) (float64, error) {
		first := w.done == 0
		if first {
			w.needs = newPieces(m.Params)
		}
		w.held = nil
		loss, err := gradient(b.Wrap(func(g *trainer.Gate) {
			wait, grad, done := g.Wait, g.Grad, g.Done
			g.Wait = func(i, from int) {
				if wait(i, from); first && w.task.Phase != wire {
					w.needs.add(i, from, time.Since(w.begun))
				}
			}
			began := false
			g.Grad = func(i int) []float32 {
				before := w.begun
				to := grad(i)
				if !began {
					w.compute(m.Params, len(b.Samples()))
				}
				if began = true; w.begun != before && b.Err() == nil {
					w.earlySteps++
				}
				return to
			}
			g.Done = func(k, i, from int) {
				if k == len(b.Groups())-1 {
					w.complete(i, from)
				}
				done(k, i, from)
			}
		}))
		if err == nil {
			err = w.held
		}
		return loss, err
	}
	return m
}

// idle returns a Gradient that computes nothing.
func idle(params []trainer.Param) func(b *trainer.Batch) (float64, error) {
	return func(b *trainer.Batch) (float64, error) {
		for i := range params {
			b.Wait(i, 0)
		}
		b.Grad(0)
		for _, g := range b.Groups() {
			for i := range slices.Backward(params) {
				g.Done(i, 0)
			}
		}
		return 1, nil
	}
}

// compute records that the computation of some samples begins.
func (w *watched) compute(params []trainer.Param, samples int) {
	w.done += samples
	w.pieces = newPieces(params)
}

// complete records that the gradient of parameter i is complete from element from on.
func (w *watched) complete(i, from int) {
	if w.task.Phase == wire {
		return
	}
	w.pieces.add(i, from, time.Since(w.begun))
	if w.task.Hold && i == 0 && from == 0 && w.done == w.task.Share {
		w.held = w.hold()
	}
}

// hold is called before the last piece is complete. It waits until nine tenths of the bytes of the
// other pieces have been sent.
func (w *watched) hold() error {
	most := 0
	for _, p := range w.pieces.all[:len(w.pieces.all)-1] {
		most += p.Bytes
	}
	most = most / 10 * 9
	var now int
	var err error
	if !process.Holds(context.Background(), limit/2, func() bool { now, err = sentBytes(); return err != nil || now >= w.sent+most }) {
		return fmt.Errorf("%d bytes were sent in %v, and the backward pass is not over; want %d", now-w.sent, limit/2, most)
	}
	return err
}

// sentBytes returns the number of bytes that this host has sent.
func sentBytes() (int, error) {
	const file = "/sys/class/net/eth0/statistics/tx_bytes"
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// result returns the result of the process.
func (w *watched) result() overlapResult {
	r := overlapResult{Steps: w.steps, Waits: w.waits, EarlySteps: w.earlySteps, SHA256: w.sum, Pieces: medians(w.all)}
	if w.task.Phase == alone {
		r.Needs = medians(w.read)
	}
	return r
}
