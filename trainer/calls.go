package trainer

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/trainer/internal/ledger"
)

// callsOf divides the microbatches of a peer into as few calls of the model as possible; most
// bounds the microbatches of a call. Gradients can be sent only during the last call, when nothing
// more is added to them, so the last call is as long as possible. With three or more calls the
// first call is also as long as possible.
func callsOf(micros []int, most int) (calls [][]int) {
	for len(micros) > 0 {
		n := firstCall(len(micros), most)
		calls, micros = append(calls, micros[:n]), micros[n:]
	}
	return calls
}

// firstCall returns the number of microbatches in the first of the calls into which callsOf divides n
// microbatches.
func firstCall(n, most int) int {
	if rest := n - most; rest > 0 && rest < most {
		return rest
	}
	return min(most, n)
}

// call is one call of the model and the implementation of its Batch. It computes either a part of
// the open step, or the beginning of the following step. In the second case two functions
// wait for the open step: coming before the model reads a parameter, and opening before the model
// writes a gradient.
type call struct {
	step    int64 // to which the samples belong
	micros  []int
	samples [][]int // by microbatch
	groups  [][]int // samples of each group

	sink   sink      // receives the gradients
	losses []float64 // by group
	// weights are those that the model has given, by group; nil if it has given none.
	weights map[int]float64
	// asked has, by parameter, the length of the prefix for which the model has not waited.
	asked []int
	// wrong describes a mistake of the model in its calls of the Batch; nil for none.
	wrong error

	coming func(i, from int) error // waits for the elements [from:] of parameter i; nil if all may be read
	// opening provides the sink before the first gradient; it is nil once there is a sink.
	opening func()
	broken  func() error // returns, while there is no sink, the reason why there will be no sink
	useless error        // reason to discard the result; nil if there is none
	// unforeseen is the time for which the model has waited for samples that it could not foresee.
	unforeseen time.Duration
	// begun is the time from which the computing time of the open step is counted.
	begun time.Time
}

// newCall returns a call for microbatches of a step; sums determines the groups.
func newCall(m Model, p stepPlan, micros []int, sums accumulator) *call {
	l := &call{step: p.step, micros: micros, samples: p.samplesOf(micros)}
	l.groups = sums.groups(l.samples)
	l.losses = make([]float64, len(l.groups))
	for _, param := range m.Params {
		l.asked = append(l.asked, len(param.Data))
	}
	return l
}

// run calls the model and then ends the sink.
func (c *call) run(m Model) error {
	loss, err := m.Gradient(NewBatch(c.groups, Gate{Step: c.step, Microbatches: c.samples, Wait: c.wait, Grad: c.grad, Done: c.done, Loss: c.addLoss,
		Weight: c.weight, Unforeseen: c.addWait, Err: c.err}))
	c.open()
	if err == nil {
		err = c.wrong
	}
	if err == nil && m.Waits {
		err = c.unread(m.Params)
	}
	if err != nil {
		return err
	}
	c.addLoss(len(c.losses)-1, loss)
	return c.sink.end()
}

// wait implements Batch.Wait.
func (c *call) wait(i, from int) {
	switch {
	case i < 0 || i >= len(c.asked) || from < 0:
		c.wrong = fmt.Errorf("the model called Wait(%d, %d): want a parameter from 0 to %d, and an element from 0 on", i, from, len(c.asked)-1)
	case from < c.asked[i]:
		c.asked[i] = from
		if c.coming == nil {
			return
		}
		if err := c.coming(i, from); err != nil {
			// The result of this call will be discarded, so the call waits for no further sums.
			c.useless, c.coming = err, nil
		}
	}
}

// err implements Batch.Err. A reason to discard the result is kept until the call ends: a result
// that was declared useless is never used later.
func (c *call) err() error {
	if c.useless == nil && c.opening != nil {
		c.useless = c.broken()
	}
	return c.useless
}

// unread returns an error for the first parameter that the model has not waited for.
func (c *call) unread(params []Param) error {
	for i, left := range c.asked {
		if left > 0 {
			return fmt.Errorf("the model did not call Wait(%d, 0) for %s: call it before each parameter is read, or leave Model.Waits unset", i, params[i].Name)
		}
	}
	return nil
}

// open provides the sink at the first gradient of the call.
func (c *call) open() {
	if find := c.opening; find != nil {
		c.coming, c.opening = nil, nil
		find()
	}
}

// grad implements Batch.Grad.
func (c *call) grad(i int) []float32 {
	c.open()
	return c.sink.grad[i]
}

// done implements Batch.Done.
func (c *call) done(group, i, from int) {
	c.open()
	c.sink.done(group, i, from)
}

// addLoss implements Batch.Loss.
func (c *call) addLoss(group int, sum float64) { c.losses[group] += sum }

// addWait implements Batch.Unforeseen.
func (c *call) addWait(wait time.Duration) { c.unforeseen += max(0, wait) }

// Bounds of a weight other than 0. The sum of weights has the resolution 2^-64, so it is exact to
// 2^-44 of each weight, and it cannot overflow.
const (
	leastWeight = 1.0 / (1 << 20)
	mostWeight  = 1 << 46
)

// weight implements Batch.Weight.
func (c *call) weight(group int, w float64) {
	if !(w == 0 || w >= leastWeight && w <= mostWeight) { // also for NaN
		c.wrong = fmt.Errorf("the model called Batch.Weight(%v): want 0, or a number from %.2g to %.2g", w, leastWeight, float64(mostWeight))
		return
	}
	if c.weights == nil {
		c.weights = make(map[int]float64)
	}
	c.weights[group] = w
}

// weighed returns the weights of the groups of a call that has ended.
func (c *call) weighed() (w ledger.Weights) {
	for k, samples := range c.groups {
		if given, ok := c.weights[k]; ok {
			w = w.Plus(ledger.WeightOf(given))
			continue
		}
		w = w.Plus(ledger.Count(int64(len(samples))))
	}
	return w
}
