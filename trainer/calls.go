package trainer

import (
	"fmt"
	"math"
	"time"
)

// callsOf cuts the microbatches that a peer is to compute into as few calls of the model as
// can be, of at most so many each. The last one, which hides most, is as long as can be, and
// the first one if there are others between them.
func callsOf(micros []int, most int) (calls [][]int) {
	for len(micros) > 0 {
		n := min(most, len(micros))
		if rest := len(micros) - most; rest > 0 && rest < most {
			n = rest
		}
		calls, micros = append(calls, micros[:n]), micros[n:]
	}
	return calls
}

// mostOf returns how many microbatches of such a size a call of the model may have.
func mostOf(m Model, samples int, exactly bool) int {
	if m.Whole {
		return math.MaxInt
	}
	if exactly && !m.Grouped {
		return 1
	}
	return max(1, m.MaxSamples/samples)
}

// call is one call of the model, and what goes through its Batch. It is one of the open step,
// or begins the step after that: then coming and opening are the two gates at which it waits.
type call struct {
	step    int64
	micros  []int
	samples [][]int // of each microbatch
	groups  [][]int // of samples

	sink   sink
	losses []float64 // of each group
	asked  []int     // by parameter: as many elements were not waited for
	wrong  error     // the model's mistake

	coming  func(i, from int) error // waits for parameter i; nil if all may be read
	opening func()                  // finds a sink, before the first gradient; nil if there is one
	broken  func() error            // why there will be no sink, while there is none
	useless error                   // why the result is of no use
	begun   time.Time               // of what counts as computing the open step
}

// newCall is for microbatches of a step, whose gradients sums takes.
func newCall(m Model, p stepPlan, micros []int, sums accumulator) *call {
	l := &call{step: p.step, micros: micros, samples: p.samplesOf(micros)}
	l.groups = sums.groups(l.samples)
	l.losses = make([]float64, len(l.groups))
	for _, param := range m.Params {
		l.asked = append(l.asked, len(param.Data))
	}
	return l
}

// run calls the model.
func (l *call) run(m Model) error {
	l.begun = time.Now()
	loss, err := m.Gradient(NewBatch(l.groups, Gate{Step: l.step, Wait: l.wait, Grad: l.grad, Done: l.done, Loss: l.addLoss,
		Err: l.err}))
	l.open()
	if err == nil {
		err = l.wrong
	}
	if err == nil && m.Waits {
		err = l.unread(m.Params)
	}
	if err != nil {
		return err
	}
	l.addLoss(len(l.losses)-1, loss)
	return l.sink.end()
}

// wait is that of a Batch.
func (l *call) wait(i, from int) {
	switch {
	case i < 0 || i >= len(l.asked) || from < 0:
		l.wrong = fmt.Errorf("the model waits for parameter %d of %d, from element %d on", i, len(l.asked), from)
	case from < l.asked[i]:
		l.asked[i] = from
		if l.coming == nil {
			return
		}
		if err := l.coming(i, from); err != nil {
			l.useless, l.coming = err, nil
		}
	}
}

// err is that of a Batch. Once the call is of no use it stays so.
func (l *call) err() error {
	if l.useless == nil && l.opening != nil {
		l.useless = l.broken()
	}
	return l.useless
}

// unread says which parameter the model has not waited for.
func (l *call) unread(params []Param) error {
	for i, left := range l.asked {
		if left > 0 {
			return fmt.Errorf("the model did not call Wait(%d, 0) for %s: call it before each parameter is read, or leave Model.Waits unset", i, params[i].Name)
		}
	}
	return nil
}

// open finds the sink, once.
func (l *call) open() {
	if find := l.opening; find != nil {
		l.coming, l.opening = nil, nil
		find()
	}
}

func (l *call) grad(i int) []float32 {
	l.open()
	return l.sink.grad[i]
}

func (l *call) done(group, i, from int) {
	l.open()
	l.sink.done(group, i, from)
}

func (l *call) addLoss(group int, sum float64) { l.losses[group] += sum }
