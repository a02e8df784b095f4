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

// overlapVariable has the task of the role overlap, as JSON.
const overlapVariable = "NETCHAOS_OVERLAP"

// The parts of a step, each for itself and together.
const (
	alone = "alone" // a group of one: no communication
	wire  = "wire"  // two members that compute nothing
	both  = "both"
)

// overlapTask says what a process of the role overlap does.
type overlapTask struct {
	Phase string
	Model string // mlp or cnn
	Share int    // samples that a peer computes in a step
	Cuts  int    // microbatches that these are
	Steps int64
	Exact bool
	// Hold keeps a backward pass from ending before most of the gradients have left this
	// host.
	Hold bool
	// Ahead gives each process a core of its own, on which it comes before others.
	Ahead bool
}

// overlapResult is what the process prints, as JSON.
type overlapResult struct {
	Steps  []time.Duration // how long each step took
	Waits  []time.Duration // of that, for others after this peer has computed its share
	Early  int             // steps that have begun before the one ahead of them was committed
	Pieces []piece         // of the gradients, in the order in which they are complete, at the medians of their times
	Needs  []piece         // of the parameters, in the order in which they are read first, likewise
	SHA256 string          // of the parameters at the end
}

// piece is a part of a parameter or of its gradient.
type piece struct {
	Param int
	From  int // element
	Bytes int
	At    time.Duration // after the beginning of the step
}

// end is the element after the last one.
func (p piece) end() int { return p.From + p.Bytes/4 }

// pieces notes what becomes of some vectors, part by part, from their ends to their
// beginnings.
type pieces struct {
	left []int // by vector: as many elements are to come
	all  []piece
}

// newPieces is for vectors as long as those parameters.
func newPieces(params []trainer.Param) (p pieces) {
	for _, v := range params {
		p.left = append(p.left, len(v.Data))
	}
	return p
}

// add notes that it was the turn of vector i from an element on.
func (p *pieces) add(i, from int, at time.Duration) {
	p.all = append(p.all, piece{i, from, 4 * (p.left[i] - from), at})
	p.left[i] = from
}

// medians are the pieces of steps, which are the same in each but for their times. A step
// that a change of members broke off lacks pieces, and does not count.
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

// overlap is the role: it trains a model and measures.
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

// group returns the group to train in, and its size.
func (task overlapTask) group(ctx context.Context, o order) (*elastic.Group, int, error) {
	if task.Phase == alone {
		g, err := launch.Init(ctx)
		return g, 1, err
	}
	g, err := o.join(ctx)
	return g, o.First, err
}

// images is how many different samples there are.
const images = 256

// model returns one of about 1.1 MB, whose dense layers come after convolutions, or of
// 2.9 MB, of equal layers.
func (task overlapTask) model() (*nn.Network, error) {
	in := nn.Shape{C: 1, H: 28, W: 28}
	if task.Model == "mlp" {
		in = nn.Shape{C: 256, H: 1, W: 1}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var data nn.Table
	for i := range task.samples() {
		x := make([]float32, 0, in.Size())
		if i >= images {
			x = data.Inputs[i%images]
		}
		for len(x) < in.Size() {
			x = append(x, rng.Float32()-0.5)
		}
		data.Inputs, data.Classes = append(data.Inputs, x), append(data.Classes, i%10)
	}
	if task.Model == "mlp" {
		return nn.MLP(data, in, []int{448, 448, 448, 448}, 10, 1)
	}
	return nn.CNN(data, in, []int{16, 32}, 500, 10, 1)
}

// samples is the size of a pass: some steps of two peers.
func (task overlapTask) samples() int { return 16 * task.Share }

// goAhead gives this process one core, on which it comes before others. Threads to come
// are like those that make them.
func goAhead(core int) error {
	const most = -20
	// Where the kernel groups processes by sessions, priorities count within a session, and
	// each session has one of its own.
	if _, err := unix.Setsid(); err != nil {
		return fmt.Errorf("begin a session: %w", err)
	}
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(most)), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("come before other sessions: %w", err)
	}
	var set unix.CPUSet
	set.Set(core)
	for range 2 { // a thread may have made one that was not seen
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

// warmUp is how many steps do not count: memory, caches and windows come into the state in
// which they stay.
const warmUp = 3

// watched notes when the gradients of a model are complete.
type watched struct {
	task overlapTask

	begun  time.Time // of the step under way
	sent   int       // bytes that this host had sent then
	done   int       // samples that were computed, or are
	needs  pieces    // of the first call
	pieces pieces    // of the last one
	held   error     // why the last one was not held back
	early  int       // steps

	// Of all steps.
	steps, waits []time.Duration
	all, read    [][]piece
	sum          string
}

// config is that of the job, for so many peers.
func (w *watched) config(peers int) trainer.Config {
	return trainer.Config{Samples: w.task.samples(), GlobalBatch: peers * w.task.Share, Microbatch: w.task.Share / w.task.Cuts,
		Steps: w.task.Steps, Exact: w.task.Exact, Balance: "equal", // both are to compute as much as one alone
		Optimizer: optim.SGD{Momentum: 0.9}, Schedule: optim.Constant(1e-4),
		OnBegin: w.begin, OnStep: w.stepped, Done: func(r trainer.Result) { w.sum = r.SHA256 }}
}

// begin takes the time of the step before.
func (w *watched) begin(step int64) {
	now := time.Now()
	if step > warmUp+1 {
		w.steps, w.all, w.read = append(w.steps, now.Sub(w.begun)), append(w.all, w.pieces.all), append(w.read, w.needs.all)
	}
	w.begun, w.done = now, 0
	if w.task.Hold {
		w.sent, _ = sentBytes() // an error comes again when it matters
	}
}

// stepped is told of a stable step.
func (w *watched) stepped(r trainer.StepReport) {
	if r.Step > warmUp {
		w.waits = append(w.waits, r.Comm)
	}
}

// watch returns a model that computes as m does, if the phase wants that, and notes when
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
					w.early++
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

// idle is a Gradient that computes nothing.
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

// compute takes note that the gradients of some samples are computed.
func (w *watched) compute(params []trainer.Param, samples int) {
	w.done += samples
	w.pieces = newPieces(params)
}

// complete takes note that a gradient is complete from an element on.
func (w *watched) complete(i, from int) {
	if w.task.Phase == wire {
		return
	}
	w.pieces.add(i, from, time.Since(w.begun))
	if w.task.Hold && i == 0 && from == 0 && w.done == w.task.Share {
		w.held = w.hold()
	}
}

// hold waits, before the last piece is complete, until most of the bytes of the others have
// been sent.
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

// sentBytes returns how many bytes this host has sent.
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

// result sums up.
func (w *watched) result() overlapResult {
	r := overlapResult{Steps: w.steps, Waits: w.waits, Early: w.early, SHA256: w.sum, Pieces: medians(w.all)}
	if w.task.Phase == alone {
		r.Needs = medians(w.read)
	}
	return r
}
