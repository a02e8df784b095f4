package trainer_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/trainer"
)

// eager is a model that waits for its parameters. Its gradients are small integers, so the weights have the same bits however the
// samples are assigned. Each of its two passes takes half a millisecond.
type eager struct {
	params []trainer.Param
	pace   time.Duration
	bad    []int   // samples for which worse is added to a gradient
	worse  float32 // the added value, for example NaN
	// reading, if set, is called for each parameter after its second half was read; parameters are then read from the last to the
	// first. gap is an additional pause in the backward pass, before the gradients of parameters 1 and 0 are complete.
	reading func(i int)
	gap     time.Duration
	broken  int // the forward pass asks for gradients too early, in the middle of this parameter; 0 for none

	deaf    bool         // the model goes on although the batch has failed
	seen    [][]float32  // parameters as read by the forward pass
	tries   int          // number of tries at steps
	calls   int          // number of calls in the last try
	passes  atomic.Int32 // number of passes that began while the previous step was reduced
	resumed atomic.Int32 // how many of these passes were used
	wrong   atomic.Bool  // a parameter changed between forward and backward pass
}

func newEager() *eager {
	m := &eager{pace: time.Millisecond / 2}
	for i, n := range []int{3, 4, 1, 6} {
		m.params = append(m.params, trainer.Param{Name: fmt.Sprintf("p%d", i), Shape: []int{n}, Data: make([]float32, n)})
	}
	return m
}

func (e *eager) Model() trainer.Model {
	return trainer.Model{Params: e.params, Gradient: e.gradient, Waits: true}
}

// begin records a try at a step.
func (e *eager) begin() { e.tries, e.calls = e.tries+1, 0 }

func (e *eager) gradient(b *trainer.Batch) (float64, error) {
	if err := e.forward(b); err != nil {
		return 0, err
	}
	return e.backward(b, e.gradients(b))
}

// forward reads the parameters, and waits until there is memory for gradients. It returns the result
// of Batch.Err.
func (e *eager) forward(b *trainer.Batch) error {
	e.calls++
	before := e.tries
	e.seen = make([][]float32, len(e.params))
	var left []int
	for i := range e.params {
		if e.reading != nil {
			i = len(e.params) - 1 - i
		}
		if left != nil || !e.read(b, i) {
			left = append(left, i)
		}
	}
	b.Grad(0)
	useless := b.Err()
	if e.tries != before || useless != nil {
		e.passes.Add(1)
	}
	if e.tries != before && useless == nil {
		e.resumed.Add(1)
	}
	for _, i := range left {
		b.Wait(i, 0)
		<-time.After(e.pace / 4)
	}
	for i, p := range e.params {
		if e.seen[i] != nil && !slices.Equal(p.Data, e.seen[i]) && useless == nil {
			e.wrong.Store(true)
		}
	}
	if e.deaf {
		return nil
	}
	return useless
}

// read reads parameter i from its end to its beginning. It returns false if it stops in the
// middle.
func (e *eager) read(b *trainer.Batch, i int) bool {
	p := e.params[i]
	half := len(p.Data) / 2
	b.Wait(i, half)
	second := slices.Clone(p.Data[half:])
	if e.reading != nil {
		e.reading(i)
	}
	if i > 0 && i == e.broken {
		return false
	}
	b.Wait(i, 0)
	b.Wait(i, half) // a model may wait again
	b.Wait(i, 0)
	e.seen[i] = append(slices.Clone(p.Data[:half]), second...)
	<-time.After(e.pace / 4)
	return true
}

// gradients returns the gradient memory of a batch.
func (e *eager) gradients(b *trainer.Batch) (grad [][]float32) {
	for i := range e.params {
		grad = append(grad, b.Grad(i))
	}
	return grad
}

func (e *eager) backward(b *trainer.Batch, grad [][]float32) (float64, error) {
	<-time.After(e.pace)
	for i := len(grad) - 1; i >= 0; i-- {
		for _, s := range b.Samples() {
			for j := range grad[i] {
				grad[i][j] += element(s, i, j)
			}
			if i == 1 && slices.Contains(e.bad, s) {
				grad[i][0] += e.worse
			}
		}
		if i == 1 && e.gap > 0 {
			<-time.After(e.gap)
		}
		b.Done(i, 0)
	}
	return float64(len(b.Samples())), nil
}

// lazy is an eager model that does not declare Waits.
type lazy struct{ *eager }

func (l lazy) Model() trainer.Model {
	model := l.eager.Model()
	model.Waits = false
	return model
}
