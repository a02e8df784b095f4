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

func (m *eager) Model() trainer.Model {
	return trainer.Model{Params: m.params, Gradient: m.gradient, Waits: true}
}

// begin records a try at a step.
func (m *eager) begin() { m.tries, m.calls = m.tries+1, 0 }

func (m *eager) gradient(b *trainer.Batch) (float64, error) {
	if err := m.forward(b); err != nil {
		return 0, err
	}
	return m.backward(b, m.gradients(b))
}

// forward reads the parameters, and waits until there is memory for gradients. It returns the result
// of Batch.Err.
func (m *eager) forward(b *trainer.Batch) error {
	m.calls++
	before := m.tries
	m.seen = make([][]float32, len(m.params))
	var left []int
	for i := range m.params {
		if m.reading != nil {
			i = len(m.params) - 1 - i
		}
		if left != nil || !m.read(b, i) {
			left = append(left, i)
		}
	}
	b.Grad(0)
	useless := b.Err()
	if m.tries != before || useless != nil {
		m.passes.Add(1)
	}
	if m.tries != before && useless == nil {
		m.resumed.Add(1)
	}
	for _, i := range left {
		b.Wait(i, 0)
		<-time.After(m.pace / 4)
	}
	for i, p := range m.params {
		if m.seen[i] != nil && !slices.Equal(p.Data, m.seen[i]) && useless == nil {
			m.wrong.Store(true)
		}
	}
	if m.deaf {
		return nil
	}
	return useless
}

// read reads parameter i from its end to its beginning. It returns false if it stops in the
// middle.
func (m *eager) read(b *trainer.Batch, i int) bool {
	p := m.params[i]
	half := len(p.Data) / 2
	b.Wait(i, half)
	second := slices.Clone(p.Data[half:])
	if m.reading != nil {
		m.reading(i)
	}
	if i > 0 && i == m.broken {
		return false
	}
	b.Wait(i, 0)
	b.Wait(i, half) // a model may wait again
	b.Wait(i, 0)
	m.seen[i] = append(slices.Clone(p.Data[:half]), second...)
	<-time.After(m.pace / 4)
	return true
}

// gradients returns the gradient memory of a batch.
func (m *eager) gradients(b *trainer.Batch) (grad [][]float32) {
	for i := range m.params {
		grad = append(grad, b.Grad(i))
	}
	return grad
}

func (m *eager) backward(b *trainer.Batch, grad [][]float32) (float64, error) {
	<-time.After(m.pace)
	for i := len(grad) - 1; i >= 0; i-- {
		for _, s := range b.Samples() {
			for j := range grad[i] {
				grad[i][j] += element(s, i, j)
			}
			if i == 1 && slices.Contains(m.bad, s) {
				grad[i][0] += m.worse
			}
		}
		if i == 1 && m.gap > 0 {
			<-time.After(m.gap)
		}
		b.Done(i, 0)
	}
	return float64(len(b.Samples())), nil
}

// lazy is an eager model that does not declare Waits.
type lazy struct{ *eager }

func (m lazy) Model() trainer.Model {
	model := m.eager.Model()
	model.Waits = false
	return model
}
