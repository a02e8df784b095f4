package trainer

import "slices"

// Batch is what a call of Model.Gradient computes, and the gate between the model and the
// run: parameters come in through it (Wait), and gradients go out (Grad, Done). A model needs
// Samples and Grad, or Add; the rest makes steps shorter. Its methods are called from the
// goroutine in which Gradient was called, before Gradient returns.
type Batch struct {
	samples []int
	groups  []*Batch // as Groups returns them
	group   int      // number of the last group
	gate    *Gate
}

// Gate carries out the methods of a Batch. A wrapper that computes with a model in its own
// way makes one for NewBatch; one that only looks at what goes through, or holds it back,
// changes one by Batch.Wrap. Functions that are nil do nothing, but for Grad, which must be
// there. All are called from the goroutine of Gradient.
type Gate struct {
	// Step is the step of the run of which the samples are, from 1; 0 outside of a run.
	Step int64
	// Grad returns where the gradient of a parameter is added.
	Grad func(param int) []float32
	// Wait returns when a parameter may be read from an element on.
	Wait func(param, from int)
	// Done takes note of what a group adds to the gradient of a parameter, from an element
	// on. When it has returned, the memory of several groups has zeros there.
	Done func(group, param, from int)
	// Loss adds to the loss of a group.
	Loss func(group int, sum float64)
	// Err returns why the result is of no use.
	Err func() error
	// Yield lets communication go on.
	Yield func()
}

// NewBatch returns a Batch of one group of samples or more for a Gradient to be called with.
// The samples belong to the caller, and must not change during that call.
func NewBatch(groups [][]int, gate Gate) *Batch {
	b := &Batch{samples: slices.Concat(groups...), group: len(groups) - 1, gate: &gate}
	if len(groups) <= 1 {
		b.groups = []*Batch{b}
		return b
	}
	for k, samples := range groups {
		g := &Batch{samples: samples, group: k, gate: &gate}
		g.groups = []*Batch{g}
		b.groups = append(b.groups, g)
	}
	return b
}

// Wrap returns a Batch of the same samples and groups as b, whose methods go through the gate
// of b after change has altered that. b stays as it is.
func (b *Batch) Wrap(change func(g *Gate)) *Batch {
	gate := *b.gate
	change(&gate)
	var wrap func(b *Batch) *Batch
	wrap = func(b *Batch) *Batch {
		w := &Batch{samples: b.samples, group: b.group, gate: &gate}
		for _, g := range b.groups {
			if g == b {
				w.groups = []*Batch{w}
				break
			}
			w.groups = append(w.groups, wrap(g))
		}
		return w
	}
	return wrap(b)
}

// Samples returns the indices of the samples, one at least, in the order in which they are
// to be added up. The slice is valid until Gradient returns, and must not be changed.
func (b *Batch) Samples() []int { return b.samples }

// Step returns the number of the step of which the samples are, from 1; 0 outside of a run. It may
// be the one after the step that Config.OnBegin was told last (Model.Waits, Config.Delay).
func (b *Batch) Step() int64 { return b.gate.Step }

// Groups returns the groups of samples of which each is to be computed as if it were alone, to
// the bit: in exact mode the microbatches, otherwise b alone. Only a model that is Grouped is
// given several. Each group is a Batch by itself with memory in common, in which they take
// turns: at a parameter, or at a piece of it, the first group adds its gradient and calls its
// Done, which leaves zeros there, then the second one does, and so on. Each tells its own Loss.
func (b *Batch) Groups() []*Batch { return b.groups }

// Wait returns when the parameter may be read from element from on: in a call that has begun
// before the step ahead of it was finished, when its sums have come in and the optimizer has
// been applied. While it waits it applies what has come for other parameters. A large
// parameter is best waited for from its end to its beginning, piece by piece, as its sums come
// in that order, and parameters in the order of Model.Params. Where there is nothing to wait
// for it costs a comparison. After a failure it returns at once; see Err.
func (b *Batch) Wait(param, from int) {
	if b.gate.Wait != nil {
		b.gate.Wait(param, from)
	}
}

// Grad returns the memory to which the gradient of a parameter is added, as long as the
// parameter. It is not zero at first, unless the Batch has several groups. It is valid until
// Gradient returns, and begins at a multiple of exact.Alignment in exact mode. The first call
// waits until the step before is finished, as there is no place for gradients before; so what
// can be computed without it should be. After a failure it returns memory that nobody reads.
func (b *Batch) Grad(param int) []float32 { return b.gate.Grad(param) }

// Done says that the gradient of a parameter is complete from element from on, so that it can
// be sent while others are computed: 0 stands for all of it, and each call for a parameter has
// a lower one than that before. What was not said is complete when Gradient returns, but for
// several groups, each of which has to say so of each parameter.
func (b *Batch) Done(param, from int) {
	if b.gate.Done != nil {
		b.gate.Done(b.group, param, from)
	}
}

// Add adds values to the gradient of a parameter, whose length they have, and says that all of
// it is complete: for models whose backward pass is done by a library that returns gradients.
// It panics if the lengths differ.
func (b *Batch) Add(param int, values []float32) {
	grad := b.Grad(param)
	if len(values) != len(grad) {
		panic("trainer: Batch.Add: the gradient has another length than the parameter")
	}
	for i, v := range values {
		grad[i] += v
	}
	b.Done(param, 0)
}

// Loss adds to the loss of the Batch, besides what Gradient returns. A model with several
// groups tells that of each, so that their sum does not depend on which are computed together.
func (b *Batch) Loss(sum float64) {
	if b.gate.Loss != nil {
		b.gate.Loss(b.group, sum)
	}
}

// Err returns nil as long as the result of the call is of use, and else why it is not: the
// step before has failed, or this peer's share has become another one. Gradient may return
// then, with that error, or finish. What it computes as its part of a step is of use even
// where the members change meanwhile.
func (b *Batch) Err() error {
	if b.gate.Err == nil {
		return nil
	}
	return b.gate.Err()
}

// Yield lets communication go on for a moment. On the only processor of a process
// (GOMAXPROCS 1, which elrun gives to peers that share their host's cores) the gradients that
// are on their way wait for that: else their messages are looked at every 10 to 20 ms. Called
// about every millisecond it costs nothing if the last call was less than half a millisecond
// ago, and else some microseconds. A model that calls Done every few milliseconds need not.
func (b *Batch) Yield() {
	if b.gate.Yield != nil {
		b.gate.Yield()
	}
}
