package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/optim"
)

// ErrOutOfMemory is wrapped by the error of a Gradient that ran out of memory.
var ErrOutOfMemory = errors.New("out of memory")

// Model is the model to train: parameters, and a function that computes gradients. A wrapper copies
// the struct and replaces a function; the other fields stay as they are.
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
// Params and Gradient are required. The other fields make steps shorter; their zero values are
// correct for every model. All fields except Prefetch and Ahead must be equal at all peers. CheckModel,
// called from a test, checks that a model follows these rules.
type Model struct {
	// Params are the parameters in declaration order. They must be equal at all peers when a run
	// begins, for example by initialisation from a common seed. Number, names, shapes and memory
	// stay the same for the whole run. The run writes to Data between steps, and with Waits also
	// during a call of Gradient, before b.Wait returns.
	//
	// In exact mode Data, and all other operands of the model, must begin at a multiple of
	// exact.Alignment, as the vectors of exact.Aligned do: the same product has other bits at
	// another address.
	Params []Param

	// Gradient sums d loss / d parameter i over the samples of b, for each parameter i, and adds
	// the sum to b.Grad(i). It returns the sum of the samples' losses. When it returns, no
	// goroutine that it started may still write to the gradients. It should declare gradients
	// complete early (b.Done), because the reduction then begins while other gradients are computed.
	//
	// All calls are made from the goroutine of Run, one at a time. A panic or runtime.Goexit
	// passes through Run; the other peers are notified.
	//
	// An error ends the job at this peer, unless it wraps ErrOutOfMemory. In that case later calls
	// have half as many microbatches; if the call had only one, the peer's share of a step is halved
	// instead. All peers then try the step again.
	Gradient func(b *Batch) (loss float64, err error)

	// Waits declares that Gradient calls b.Wait for each parameter before it reads the parameter.
	// Then, between hosts, a call of the next step begins while sums of the previous step are
	// still arriving, unless Gradients has Exact or Clip. Waits takes memory for a second copy of
	// the parameters and of the optimizer state.
	Waits bool
	// MaxSamples is the number of samples up to which one call is as fast as one call per
	// microbatch; 0 means one microbatch. Between hosts a call gets up to MaxSamples samples:
	// gradients are sent only during the last call of a step, so that call should be long. In exact
	// mode such calls require Grouped. If a call nevertheless runs out of memory, later calls have
	// half as many microbatches. With Whole, which has no other bound, 0 means the whole share.
	MaxSamples int
	// Grouped declares that Gradient computes each group of a Batch (b.Groups) as if it were
	// alone, bit for bit.
	Grouped bool
	// Whole declares that the result of Gradient is not the sum of its results for parts of the
	// Batch: one call gets the peer's whole share of a step, also within a host. A share takes
	// several calls only after a session that broke, for lack of memory, or with MaxSamples. Whole
	// is refused in exact mode, whose results must not depend on the shares.
	Whole bool
	// Order, if set, returns the order in which gradients become complete: all or some of the calls
	// of b.Done, but for each parameter at least the last call, which has From 0. Buckets follow
	// the returned order. A nil Order means the order from the last parameter to the first. If
	// overlapped is true, each step begins before all sums of the previous step have arrived
	// (Waits), so the parameter that is read last may be complete last; otherwise all gradients
	// should be complete early.
	Order func(overlapped bool) []Piece
	// Prefetch, if set, reads the data of samples ahead, as far as it can. samples are the samples
	// of this peer's share of the open step, without those of the first call, which begins at once.
	// Then follow the samples that this peer will have in the next step if the shares do not change,
	// and, if that step is a short one at the end of a pass, those of the step after it.
	//
	// Prefetch is called from a goroutine of its own, concurrently with Gradient, one call at a
	// time. No sample is named twice for one step. A slow call delays no step: newer samples are in
	// the next call. Prefetch must return when ctx ends, because Run waits for it. It must not keep
	// or change samples. Prefetch ignores read errors: the read in Gradient will return them.
	Prefetch func(ctx context.Context, samples []int)
	// Ahead, if set, is told the same as Prefetch by microbatch and step: the microbatches of the open
	// step after the first call, then those of the next steps. It is for models that hand them on to
	// others who read. The goroutine of Run calls it before the first call of the step, so it must
	// return at once. It may keep microbatches, and must not change them.
	Ahead func(step int64, microbatches [][]int)
	// Grads, if set, is the memory of the gradients, by parameter: Batch.Grad returns these vectors, so
	// another process may have the memory mapped. In exact mode each vector begins at a multiple of
	// exact.Alignment, as those of exact.Views do. Otherwise the vectors are consecutive parts of one
	// array, and the capacity of the first reaches to the end of the last. The run writes to them
	// between calls of Gradient, and an Updater finds the mean there. If the vectors lie in the memory
	// that the ranks of a host share (collective.IsShared), they are reduced there.
	Grads [][]float32
	// GradScale is the factor by which Gradient multiplies gradients; 0 means 1. The mean gradient is
	// without it. A power of two does not change how gradients are rounded.
	GradScale float64
	// Updater, if set, updates the parameters in place of Config.Optimizer and Config.Schedule, which
	// must be nil then. It is refused together with Waits, Config.Growth, and Clip, Delay and Audit
	// of Config.Gradients.
	Updater optim.Updater
	// NotFinite lets gradients that are infinite or NaN reach the Updater, which leaves out their step,
	// as scalers of losses in half precision do; losses must be finite. Without NotFinite such gradients
	// end the job. It is refused without an Updater, in exact mode, and with Gradients.Compression.
	NotFinite bool
}

// Param is one parameter of a model: a named vector with a shape.
type Param struct {
	// Name is the name of the parameter in errors and checkpoints.
	Name  string
	Shape []int     // row-major; the product is len(Data)
	Data  []float32 // the model's own memory
}

// Piece is a part of the gradient of parameter Param: from element From up to the previous piece
// of that parameter.
type Piece struct{ Param, From int }

// Accumulate computes a gradient outside of a run. It adds the sums over the samples to grad,
// which has one vector per parameter, of the parameter's length, and returns the sum of the
// losses. done, if set, is called for complete parts, as Batch.Done is. After an error grad is
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

// gradScale returns GradScale with its default.
func (m Model) gradScale() float64 {
	if m.GradScale == 0 {
		return 1
	}
	return m.GradScale
}

// check validates the model.
func (m Model) check() error {
	if len(m.Params) == 0 {
		return errors.New("trainer: the model has no parameters: set Model.Params")
	}
	if m.Gradient == nil {
		return errors.New("trainer: the model has no gradient function: set Model.Gradient")
	}
	if m.Grads != nil && len(m.Grads) != len(m.Params) {
		return fmt.Errorf("trainer: Model.Grads has %d vectors for %d parameters, want one each", len(m.Grads), len(m.Params))
	}
	if m.GradScale < 0 || !finite(m.GradScale) {
		return fmt.Errorf("trainer: Model.GradScale is %v, want a positive number, or 0 for 1", m.GradScale)
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
			return fmt.Errorf("trainer: parameter %d, %q, has %d elements and the shape %v: want as many elements as the product of the shape, at least 1", i, p.Name, len(p.Data), p.Shape)
		}
		if m.Grads != nil && len(m.Grads[i]) != size {
			return fmt.Errorf("trainer: Model.Grads has %d elements for parameter %d, %q, want %d", len(m.Grads[i]), i, p.Name, size)
		}
	}
	return nil
}

// Score is the result of a model on some samples. Scores of disjoint parts add up to the score of
// the whole.
type Score struct {
	Samples int
	Correct int     // correctly classified, of Samples
	Loss    float64 // sum over Samples
}

// Accuracy returns the fraction of correct samples; NaN if there are no samples.
func (s Score) Accuracy() float64 { return float64(s.Correct) / float64(s.Samples) }

// MeanLoss returns the loss per sample; NaN if there are no samples.
func (s Score) MeanLoss() float64 { return s.Loss / float64(s.Samples) }

// told returns the event of an evaluation that took a while. It leaves out what is not a number.
func (s Score) told(set string, took time.Duration) event.Eval {
	e := event.Eval{Set: set, Samples: s.Samples, MS: milliseconds(took)}
	if accuracy := s.Accuracy(); finite(accuracy) {
		e.Accuracy = &accuracy
	}
	if loss := s.MeanLoss(); finite(loss) {
		e.Loss = &loss
	}
	return e
}
