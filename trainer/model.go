package trainer

import (
	"context"
	"errors"
)

// ErrOutOfMemory is what a Model's error wraps where memory is short.
var ErrOutOfMemory = errors.New("out of memory")

// Model is what a user trains. Its parameters must be the same at every peer when
// Run begins, which an initialisation from a common seed gives.
type Model interface {
	// Params returns the parameters in declaration order. Number, names, shapes and
	// memory stay the same for the whole run; Run writes to Data between steps. In exact
	// mode Data, and whatever else the model computes with, has to begin at a multiple of
	// exact.Alignment, as the vectors of exact.Aligned do: the same product has other
	// bits at another address.
	Params() []Param
	// Accumulate adds, for the samples with the given indices, the sum over the
	// samples of d loss / d parameter i to grad[i], which is as long as
	// Params()[i].Data; it is Run's memory, and gone when Run has returned. It calls done(i) once for each i, after its last write to
	// grad[i] and before it returns, from its own goroutine; in any order, but the
	// earlier the better, as the reduction of grad[i] begins then. It returns the sum
	// of the samples' losses.
	//
	// An error ends the job at this peer, but for one that wraps ErrOutOfMemory: then the
	// peer takes half as many microbatches from now on, all at once or, if it was given one,
	// in a step, and all try the step again.
	Accumulate(grad [][]float32, samples []int, done func(i int)) (loss float64, err error)
}

// Piecewise is a Model that tells of parts of a gradient as soon as they are complete, so
// that the reduction of a large parameter begins before all of it is computed. A model
// whose parameters are small need not be one.
type Piecewise interface {
	// AccumulatePieces is Accumulate, with ready in place of done: ready(i, from) says that
	// grad[i] is complete from the element from on. For each i from becomes less with every
	// call, and is 0 in the last one.
	AccumulatePieces(grad [][]float32, samples []int, ready func(i, from int)) (loss float64, err error)
}

// Ordered is a Model whose gradients are not complete in the order from the last parameter to
// the first. It makes steps shorter between hosts if those that the next step needs first are
// not the last ones. What it says has to be the same at every peer.
type Ordered interface {
	// Order returns what is complete of the gradients, in the order in which it is from now
	// on: the calls of ready of AccumulatePieces, or some of them; for each parameter the last
	// one. What is sent together follows the calls that it names. If ahead is true each step
	// begins before all sums of the one before it are there, as Staged says, so that those it
	// reads last may be complete last; otherwise it is best if all are complete early.
	Order(ahead bool) []Piece
}

// Piece is a call ready(Param, From) of a Piecewise: the gradient of a parameter is complete
// from an element on.
type Piece struct{ Param, From int }

// accumulate lets a model add the gradients of samples, in pieces if it can.
func accumulate(m Model, grad [][]float32, samples []int, ready func(i, from int)) (float64, error) {
	if p, ok := m.(Piecewise); ok {
		return p.AccumulatePieces(grad, samples, ready)
	}
	return m.Accumulate(grad, samples, func(i int) { ready(i, 0) })
}

// Staged is a Model that computes a gradient in two stages. The first of the next step begins
// while the sums of the step before are still coming in, parameter by parameter, where that
// makes steps shorter: between hosts, unless Config has Exact or Clip. That takes memory for
// another copy of the parameters and of what the optimizer keeps.
type Staged interface {
	// Forward computes what it can of Accumulate without adding to gradients. Before it
	// reads a parameter for the first time it calls need, from its own goroutine:
	// need(i, from) returns when Run has written what parameter i is in the next step, from
	// the element from on, or returns an error, which ends Forward. A large parameter is
	// best read from its end to its beginning, part by part, as the sums come in that order,
	// and parameters in the order of Params; need(i, 0) is for all of it. Forward changes
	// nothing that a call of Accumulate depends on, as it may have been for nothing;
	// Accumulate returns the errors of the model, too, so those of Forward are passed over.
	// samples is gone when it returns.
	Forward(samples []int, need func(i, from int) error) error
	// Backward is AccumulatePieces of the last Forward's samples. No parameter has changed
	// since that.
	Backward(grad [][]float32, ready func(i, from int)) (loss float64, err error)
}

// Wide is a Model that computes several microbatches in one call as fast as one by one. Between
// hosts, but for exact mode, for which see Abreast, it is given as many as it can take:
// gradients travel while the last call of a step computes them, and the first one of the next
// step begins before all sums have come, so that calls of one microbatch hide the less the more
// of them there are.
type Wide interface {
	// MostSamples returns how many samples a call of Accumulate, or of Forward, may have. If
	// one runs out of memory all the same calls have half as many microbatches from then on.
	MostSamples() int
}

// Abreast is a Wide Model that computes several microbatches abreast, each as if it were alone.
// In exact mode it is given as many as Wide models are otherwise.
type Abreast interface {
	Wide
	// AccumulateEach computes the gradients of microbatches, given by the samples of each, and
	// returns their losses. Each has the bits that Accumulate gives it alone, with a grad of
	// zeros. It goes from parameter to parameter, and at each, or at a part of it, from one
	// microbatch to the next: ready(k, i, from) says that grad[i] has what microbatch k adds,
	// from the element on. Run takes that, and has set it to zero when ready returns. For
	// each k and i from becomes less with every call, and is 0 in the last one. Errors are
	// those of Accumulate.
	AccumulateEach(grad [][]float32, micros [][]int, ready func(k, i, from int)) (losses []float64, err error)
}

// Pausing is a Model that pauses now and then while it computes. On the only processor of a
// process (GOMAXPROCS 1, which elrun gives to peers that share their host's cores) the
// gradients that are on their way wait for that: else their messages are looked at every 10
// to 20 ms. A model that tells of gradients every few milliseconds need not be one.
type Pausing interface {
	// PauseBy gives the model a function to call about every millisecond or oftener, from
	// the goroutine in which it computes; nil when Run returns. A call costs nothing if
	// the last one was less than half a millisecond ago, and else some microseconds.
	PauseBy(pause func())
}

// Prefetcher is a Model that can have the data of samples read ahead. A model whose data
// is in memory need not be one. Run tells it, in its own time, which samples this peer
// will compute next: those of its share of the open step but for the first microbatch,
// which is computed at once, and those of the step after, as they follow if shares stay
// what they are.
type Prefetcher interface {
	// Prefetch has the samples with the given indices read ahead, as far as it can. It is
	// called from a goroutine of Run's, at the same time as the other methods, one call
	// at a time. No sample is named twice for one step. How long a call takes holds up no
	// step: what has changed meanwhile is in the next call. Run waits for it when it
	// returns, so it has to come back when ctx ends. What cannot be read is no error
	// here; it will be where it is needed. samples is Run's, until Prefetch returns.
	Prefetch(ctx context.Context, samples []int)
}

// Param is one parameter of a model: a named vector with a shape.
type Param struct {
	Name  string
	Shape []int     // row-major; its product is len(Data)
	Data  []float32 // the model's own memory
}

// Score is the result of a model on some samples. Scores of parts add up to the
// score of the whole.
type Score struct {
	Samples int
	Correct int     // of Samples
	Loss    float64 // sum over Samples
}

// Accuracy is the share of correct samples; NaN of none.
func (s Score) Accuracy() float64 { return float64(s.Correct) / float64(s.Samples) }

// MeanLoss is the loss per sample; NaN of none.
func (s Score) MeanLoss() float64 { return s.Loss / float64(s.Samples) }
