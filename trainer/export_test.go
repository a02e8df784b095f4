package trainer

import (
	"context"
	"errors"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/checkpoint"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/exact"
)

// Accumulator is a model that adds its gradients to grad, and calls done when a parameter's gradient is complete.
type Accumulator interface {
	Params() []Param
	Accumulate(grad [][]float32, samples []int, done func(i int)) (loss float64, err error)
}

// ModelOf returns the Model of an Accumulator.
func ModelOf(m Accumulator) Model {
	params := m.Params()
	return Model{Params: params, Gradient: func(b *Batch) (float64, error) {
		grad := make([][]float32, len(params))
		for i := range grad {
			grad[i] = b.Grad(i)
		}
		return m.Accumulate(grad, b.Samples(), func(i int) { b.Done(i, 0) })
	}}
}

// SharingReducer is a reducer with gradients and without other state. Tests outside this package use it with several ranks.
type SharingReducer struct {
	reducer reducer
	sums    *floatAccumulator
}

// NewSharingReducer returns a SharingReducer with gradients of n elements.
func NewSharingReducer(n int) *SharingReducer {
	h := new(SharingReducer)
	h.sums, _ = newFloatAccumulator(newLayout([]Param{{Name: "p", Shape: []int{n}, Data: make([]float32, n)}}, n))
	h.reducer.sums = h.sums
	return h
}

// Migrate prepares the reducer for a session, as a run does.
func (s *SharingReducer) Migrate(c *collective.Comm) { s.reducer.migrate(c) }

// Vectors returns the gradients of this rank, and the vector that receives the sums.
func (s *SharingReducer) Vectors() (own, staging []float32) {
	return s.sums.own.flat, s.sums.bufs.staging.flat
}

// SharedVectors returns the number of vectors that lie in memory shared by the ranks of c. mode is "plain", "exact" or the name
// of a coding.
func SharedVectors(c *collective.Comm, mode string) (int, error) {
	l := newLayout([]Param{{Name: "p", Shape: []int{1000}, Data: make([]float32, 1000)}}, 1000)
	var sums accumulator
	switch mode {
	case "plain":
		sums, _ = newFloatAccumulator(l)
	case "exact":
		sums, _ = newExactAccumulator(l)
	default:
		coding, err := compress.Parse(mode)
		if err != nil {
			return 0, err
		}
		sums, _ = newCompressedAccumulator(l, coding, nil)
	}
	h := sharedBuffers{comm: c}
	err := sums.migrate(&h)
	return len(h.allocations), errors.Join(err, freeExcept(h.allocations, nil))
}

// RunOnDisk is Run with another disk: wrap gets the function that writes a checkpoint, and returns the function to use instead.
func RunOnDisk(ctx context.Context, g *elastic.Group, m Model, cfg Config, wrap func(write func() (string, error)) (string, error)) error {
	return New(g, m, cfg).run(ctx, func(j *job) {
		j.saver.store = func(dir string, h checkpoint.Header, tensors []checkpoint.Tensor) (string, error) {
			return wrap(func() (string, error) { return checkpoint.Write(dir, h, tensors) })
		}
	})
}

// SeedAudits makes the random numbers of a peer's audits the same in each run.
func SeedAudits(c *Config, seed uint64) { c.Gradients.auditSeed = seed }

// Leave frees all shared memory.
func (s *SharingReducer) Leave() error { return s.reducer.leave() }

// ReduceInOrder reduces gradients of one-element parameters in exact mode. The gradients become complete in the given order, and
// each call ends before the next begins. The peak of parameter i is i+1, and is known only when its gradient is complete.
// ReduceInOrder returns the reduced peaks.
func ReduceInOrder(ctx context.Context, c *collective.Comm, order ...int) ([]exact.Peak, error) {
	var params []Param
	var pieces []Piece
	for _, i := range order {
		params = append(params, Param{Name: "p", Shape: []int{1}, Data: make([]float32, 1)})
		pieces = append(pieces, Piece{Param: i})
	}
	l := newLayout(params, 1)
	if err := l.completeIn(pieces); err != nil {
		return nil, err
	}
	l.divide(1, 1)
	q, _ := newExactAccumulator(l)
	r := newReduction(l, func(b bucket) pending { return q.reduce(ctx, bucketComm{ordered: c, plain: c}, b) })
	for _, i := range order {
		q.peaks[i] = exact.Peak(i + 1)
		r.ready(i, 0)
		if err := r.wait(ctx); err != nil {
			return nil, err
		}
	}
	return q.step, r.err
}
