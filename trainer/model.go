package trainer

import (
	"context"
	"errors"
	"fmt"
)

// ErrOutOfMemory is wrapped by the error of a Gradient that lacks memory.
var ErrOutOfMemory = errors.New("out of memory")

// Model is what a user trains: parameters, and a function that computes gradients. A
// wrapper copies the struct and replaces a function; whatever else the model can do stays.
//
//	func logged(m trainer.Model) trainer.Model {
//		gradient := m.Gradient
//		m.Gradient = func(b *trainer.Batch) (float64, error) {
//			loss, err := gradient(b)
//			log.Print(len(b.Samples()), loss)
//			return loss, err
//		}
//		return m
//	}
//
// Params and Gradient are required. The other fields make steps shorter; their zero values
// are right for every model. All fields but Prefetch must say the same at every peer.
// CheckModel, in a test, tells whether a model keeps these rules.
type Model struct {
	// Params are the parameters in declaration order. They must be equal at all peers when
	// a run begins, which an initialisation from a common seed gives. Number, names, shapes
	// and memory stay the same for the whole run, which writes to Data between steps. In
	// exact mode Data, and whatever else the model computes with, has to begin at a multiple
	// of exact.Alignment, as the vectors of exact.Aligned do: the same product has other
	// bits at another address.
	Params []Param

	// Gradient adds, for the samples of b, the sum over the samples of d loss / d parameter
	// i to b.Grad(i), for each i, and returns the sum of the samples' losses. When it has
	// returned, it has written its last: all goroutines that it started have ended. It
	// should tell earlier what is complete (b.Done): the reduction begins then, while the
	// rest is computed.
	//
	// It is called from the goroutine of Run, always the same, one call at a time. What it
	// panics with goes through Run, and so does runtime.Goexit; the other peers are told.
	//
	// An error ends the job at this peer, but for one that wraps ErrOutOfMemory: then the
	// peer takes half as many microbatches from now on, all at once or, if it was given one,
	// in a step, and all try the step again.
	Gradient func(b *Batch) (loss float64, err error)

	// Waits says that Gradient calls b.Wait for each parameter before it reads it. Then,
	// between hosts, a call of the next step begins while sums of the step before are still
	// coming in, unless Config has Exact or Clip. That takes memory for another copy of the
	// parameters and of what the optimizer keeps.
	Waits bool
	// MaxSamples is how many samples a call may have and still be as fast as calls of a
	// microbatch each; 0 stands for a microbatch. Between hosts calls are as long as that,
	// because gradients travel while the last call of a step computes them. In exact mode
	// the model has to be Grouped for that. If a call runs out of memory all the same, calls
	// have half as many microbatches from then on.
	MaxSamples int
	// Grouped says that Gradient computes the groups of a Batch (b.Groups) each as if it
	// were alone, to the bit.
	Grouped bool
	// Whole says that what Gradient computes is not the sum of what it would compute of parts:
	// it is given its peer's whole share of a step in one call, also within a host. Only after
	// a session that was broken off, or for lack of memory, a share takes several calls. It
	// makes no sense in exact mode, which is there so that shares do not matter.
	Whole bool
	// Order, if set, returns the order in which gradients are complete from now on: the
	// calls of b.Done, or some of them; for each parameter the last one, with From 0. What
	// is sent together follows the calls that it names. nil stands for the order from the
	// last parameter to the first. If overlapped is true each step begins before all sums of
	// the one before it are there (Waits), so that what is read last may be complete last;
	// otherwise it is best if all are complete early.
	Order func(overlapped bool) []Piece
	// Prefetch, if set, has the data of samples read ahead, as far as it can: those of this
	// peer's share of the open step but for the first call, which is computed at once, and
	// those of the step after, as they follow if shares stay what they are. It is called
	// from a goroutine of its own, at the same time as Gradient, one call at a time. No
	// sample is named twice for one step. How long a call takes holds up no step: what has
	// changed meanwhile is in the next call. It has to come back when ctx ends, as Run waits
	// for it. What cannot be read is no error here; it will be where it is needed. samples
	// belongs to the caller.
	Prefetch func(ctx context.Context, samples []int)
}

// Param is one parameter of a model: a named vector with a shape.
type Param struct {
	Name  string
	Shape []int     // row-major; its product is len(Data)
	Data  []float32 // the model's own memory
}

// Piece is a part of a gradient: that of parameter Param, from the element From on up to the
// piece before it.
type Piece struct{ Param, From int }

// Accumulate computes a gradient outside of a run: it adds the sums over the samples to
// grad, which has a vector for each parameter, of its length, and returns the sum of the
// losses. done, if set, is told what is complete, as by Batch.Done. After an error grad is
// undefined.
func (m Model) Accumulate(grad [][]float32, samples []int, done func(param, from int)) (loss float64, err error) {
	if len(grad) != len(m.Params) {
		return 0, fmt.Errorf("trainer: accumulate: %d gradients for %d parameters", len(grad), len(m.Params))
	}
	gate := Gate{Grad: func(param int) []float32 { return grad[param] }, Loss: func(_ int, sum float64) { loss += sum }}
	if done != nil {
		gate.Done = func(_, param, from int) { done(param, from) }
	}
	rest, err := m.Gradient(NewBatch([][]int{samples}, gate))
	return loss + rest, err
}

// check says what is missing of the model.
func (m Model) check() error {
	if len(m.Params) == 0 {
		return errors.New("trainer: the model has no parameters: set Model.Params")
	}
	if m.Gradient == nil {
		return errors.New("trainer: the model computes nothing: set Model.Gradient")
	}
	if m.MaxSamples < 0 {
		return fmt.Errorf("trainer: Model.MaxSamples is %d, want 0 or more", m.MaxSamples)
	}
	for i, p := range m.Params {
		size := 1
		for _, side := range p.Shape {
			size *= side
		}
		if size != len(p.Data) || size == 0 {
			return fmt.Errorf("trainer: parameter %d, %q, has %d elements in the shape %v", i, p.Name, len(p.Data), p.Shape)
		}
	}
	return nil
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
