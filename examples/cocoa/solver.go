package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/parts"
)

// Options are the options of a Solver, equal at all peers.
type Options struct {
	Loss   string        // svm or ridge
	Lambda float64       // weight of the regulariser; 0 means 1 / samples
	Chunk  int           // samples of a chunk
	Copies int           // copies of a chunk
	Tasks  int           // tasks of a peer
	Rounds int64         // most rounds
	Gap    float64       // duality gap at which the training ends
	Pace   time.Duration // least time of a round
	Check  bool          // compare w with the sum of all chunks in each round
	// Round, if set, is called after each committed round.
	Round func(s *Solver)
}

// Solver minimises sum_i loss(w x_i) / n + Lambda |w|^2 / 2 over w. The dual variable a_i of each sample
// is in a piece, and w is the sum of all a_i x_i / (Lambda n).
type Solver struct {
	Rounds int64     // committed rounds
	W      []float64 // the model

	Gap     float64 // duality gap before the last round
	Primal  float64 // objective before the last round
	Rebuilt int     // chunks whose variables were lost, without those at the start
	Error   float64 // with Options.Check, the largest difference of w and the sum of the chunks

	options Options
	table   *Table
	loss    loss
	scale   float64 // 1 / (Lambda n)
	duals   *parts.Parts[float64]
}

// loss has what a loss needs: with z = w x and the target y of a sample, the loss and its convex
// conjugate, and the value of the dual variable a that is best when the others stay.
type loss struct {
	primal func(z, y float64) float64
	dual   func(a, y float64) float64
	best   func(a, z, y, curvature float64) float64
}

// losses returns the losses by name. The dual variable of the support vector machine has the sign of y.
func losses() map[string]loss {
	return map[string]loss{
		"svm": {
			primal: func(z, y float64) float64 { return max(0, 1-y*z) },
			dual:   func(a, y float64) float64 { return y * a },
			best: func(a, z, y, curvature float64) float64 {
				return y * min(1, max(0, y*a+(1-y*z)/curvature))
			},
		},
		"ridge": {
			primal: func(z, y float64) float64 { return (z - y) * (z - y) / 2 },
			dual:   func(a, y float64) float64 { return a*y - a*a/2 },
			best:   func(a, z, y, curvature float64) float64 { return a + (y-z-a)/(1+curvature) },
		},
	}
}

// NewSolver returns a solver whose variables are 0.
func NewSolver(table *Table, o Options) (*Solver, error) {
	loss, known := losses()[o.Loss]
	if !known {
		return nil, fmt.Errorf("unknown loss %q", o.Loss)
	}
	n := len(table.Targets)
	if o.Lambda == 0 {
		o.Lambda = 1 / float64(n)
	}
	var lengths []int
	for first := 0; first < n; first += o.Chunk {
		lengths = append(lengths, min(o.Chunk, n-first))
	}
	return &Solver{
		W: make([]float64, table.Dim), Gap: math.Inf(1), options: o, table: table, loss: loss, scale: 1 / (o.Lambda * float64(n)),
		duals: parts.New[float64](lengths, parts.Options{Copies: o.Copies}),
	}, nil
}

// Stats returns what this peer has done for the pieces.
func (s *Solver) Stats() parts.Stats { return s.duals.Stats() }

// Train runs rounds until the duality gap is small enough.
func (s *Solver) Train(ctx context.Context, g *elastic.Group) error {
	for t := range g.Steps(ctx, elastic.Vectors(&s.Rounds, s.W, s.duals.Tag()), s.options.Rounds) {
		begun := time.Now()
		w, err := s.settle(ctx, t)
		if err != nil {
			continue
		}
		sums := s.improve(w, t.Comm.Size())
		wait(ctx, s.options.Pace-time.Since(begun))
		if s.duals.Replicate(ctx) != nil || collective.AllReduce(ctx, t.Comm, sums, sums, collective.Sum[float64]) != nil {
			continue // the round is tried again by those who are left
		}
		s.commit(w, sums)
		t.Report("gap", s.Gap)
		if s.Gap <= s.options.Gap {
			t.Stop()
		}
		if s.options.Round != nil {
			s.options.Round(s)
		}
	}
	return g.Err()
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// settle places the chunks, and returns w. The variables of lost chunks are 0, so w follows from those
// that are left.
func (s *Solver) settle(ctx context.Context, t *elastic.Turn) (w []float64, err error) {
	lost, err := s.duals.Settle(ctx, t)
	if err != nil || len(lost) == 0 || s.Rounds == 0 {
		return s.W, err
	}
	w = s.total()
	if err := collective.AllReduce(ctx, t.Comm, w, w, collective.Sum[float64]); err != nil {
		return nil, err
	}
	s.Rebuilt += len(lost)
	return w, nil
}

// total returns the part of w that comes from the chunks of this peer.
func (s *Solver) total() []float64 {
	w := make([]float64, s.table.Dim)
	for k, a := range s.duals.Own() {
		for i, v := range a {
			s.table.add(w, k*s.options.Chunk+i, v*s.scale)
		}
	}
	return w
}

// Elements of the sums of a round after the change of w. With Options.Check the part of w that comes from
// the chunks of a peer follows.
const (
	sumPrimal = iota
	sumDual
	sumWords
)

// improve stages better dual variables of the chunks of this peer, and returns its part of the sums. Each
// of the tasks takes the chunks in turn, and sees only its own changes of w. To be safe when all changes
// are added, it takes its own ones by the number of all tasks.
func (s *Solver) improve(w []float64, peers int) []float64 {
	tasks, dim := peers*s.options.Tasks, s.table.Dim
	sums := make([]float64, dim+sumWords)
	var own []int
	for k := range s.duals.Own() {
		own = append(own, k)
	}
	for task := range s.options.Tasks {
		change := make([]float64, dim)
		for _, k := range own[task*len(own)/s.options.Tasks : (task+1)*len(own)/s.options.Tasks] {
			s.ascend(k, w, change, float64(tasks))
		}
		for j, v := range change {
			sums[j] += v
		}
	}
	for k, a := range s.duals.Own() {
		for i, v := range a {
			sample := k*s.options.Chunk + i
			y := float64(s.table.Targets[sample])
			sums[dim+sumPrimal] += s.loss.primal(s.table.dot(w, sample), y)
			sums[dim+sumDual] += s.loss.dual(v, y)
		}
	}
	if s.options.Check {
		sums = append(sums, s.total()...)
	}
	return sums
}

// ascend goes once over the samples of a chunk in a random order, and chooses the best value of each
// variable. The change of w so far counts tasks times.
func (s *Solver) ascend(k int, w, change []float64, tasks float64) {
	next := s.duals.Next(k)
	r := rand.New(rand.NewPCG(uint64(s.Rounds), uint64(k)))
	for _, i := range r.Perm(len(next)) {
		sample := k*s.options.Chunk + i
		z := s.table.dot(w, sample) + tasks*s.table.dot(change, sample)
		best := s.loss.best(next[i], z, float64(s.table.Targets[sample]), tasks*s.scale)
		s.table.add(change, sample, (best-next[i])*s.scale)
		next[i] = best
	}
}

// commit completes a round with the sums over all peers. w is the model before the round.
func (s *Solver) commit(w, sums []float64) {
	dim, n := s.table.Dim, float64(len(s.table.Targets))
	if s.options.Check {
		for j, v := range sums[dim+sumWords:] {
			s.Error = max(s.Error, math.Abs(v-w[j]))
		}
	}
	square := 0.0
	for _, v := range w {
		square += v * v
	}
	s.Primal = sums[dim+sumPrimal]/n + s.options.Lambda/2*square
	s.Gap = s.Primal - (sums[dim+sumDual]/n - s.options.Lambda/2*square)
	for j := range s.W {
		s.W[j] = w[j] + sums[j]
	}
	s.duals.Commit()
	s.Rounds++
}

// Result returns the objective, and for the support vector machine the fraction of samples that are
// classified correctly.
func (s *Solver) Result() elastic.Result {
	r := elastic.Result{Loss: &s.Primal}
	if s.options.Loss == "svm" {
		right := 0
		for i, y := range s.table.Targets {
			if float64(y)*s.table.dot(s.W, i) > 0 {
				right++
			}
		}
		r.Accuracy = new(float64(right) / float64(len(s.table.Targets)))
	}
	return r
}

// String describes the result.
func (s *Solver) String() string {
	p := s.Stats()
	text := fmt.Sprintf("rounds %d, gap %.2e, chunks lost %d; this peer owns %d and holds %d of %d chunks, moved %d and copied %d variables, missed %d commits",
		s.Rounds, s.Gap, s.Rebuilt, p.Owned, p.Held, s.duals.Len(), p.Moved, p.Copied, p.Late)
	if s.options.Check {
		text += fmt.Sprintf("; w differs from the sum of the chunks by %.1e at most", s.Error)
	}
	return text
}
