package trainer

import (
	"slices"
	"time"
)

// Batch is the argument of Model.Gradient. It has the samples to compute, and connects the model
// with the run. Parameters become readable through Wait, and gradients are passed on through Grad
// and Done. A model needs Samples and Grad, or Samples and Add; the other methods make steps
// shorter. All methods are called from the goroutine of Gradient, before Gradient returns.
type Batch struct {
	samples []int
	groups  []*Batch // the result of Groups
	group   int      // number of the last group
	micros  [][]int  // the microbatches of a call of a run
	gate    *Gate
}

// Gate implements the methods of a Batch. Programs that call a model outside of a run pass a Gate
// to NewBatch. A wrapper that only observes or delays the calls of a model changes the Gate with
// Batch.Wrap. A nil function does nothing; only Grad is required. All functions are called from the
// goroutine of Gradient.
type Gate struct {
	// Step is the step of the run to which the samples belong, from 1; 0 outside of a run.
	Step int64
	// Microbatches has the samples by microbatch; nil if each group is one.
	Microbatches [][]int
	// Grad returns the memory to which the gradient of a parameter is added.
	Grad func(param int) []float32
	// Wait returns when the elements [from:] of a parameter may be read.
	Wait func(param, from int)
	// Done records that the elements [from:] of a group's gradient of a parameter are complete.
	// With several groups, that range of the memory is zero when Done returns.
	Done func(group, param, from int)
	// Loss adds sum to the loss of a group.
	Loss func(group int, sum float64)
	// Weight sets the weight of a group. A nil Weight means that its caller counts samples.
	Weight func(group int, weight float64)
	// Unforeseen records a wait for samples that Model.Ahead has not named.
	Unforeseen func(wait time.Duration)
	// Err returns the reason why the result of the call will be discarded, or nil if it will be
	// used.
	Err func() error
	// Yield lets communication make progress.
	Yield func()
}

// NewBatch returns a Batch of one or more groups of samples, as an argument for a Gradient. The
// caller owns the samples, and must not change them during that call.
func NewBatch(groups [][]int, gate Gate) *Batch {
	b := &Batch{samples: slices.Concat(groups...), group: len(groups) - 1, micros: gate.Microbatches, gate: &gate}
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

// Wrap returns a Batch of the same samples and groups as b with a changed gate: change is called
// with a copy of b's gate. b is not modified.
func (b *Batch) Wrap(change func(g *Gate)) *Batch {
	gate := *b.gate
	change(&gate)
	var wrap func(b *Batch) *Batch
	wrap = func(b *Batch) *Batch {
		w := &Batch{samples: b.samples, group: b.group, micros: b.micros, gate: &gate}
		for _, g := range b.groups {
			// A batch of one group is its own group: the copy must be, too, or wrap would not end.
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

// Samples returns the indices of the samples, at least one, in the order in which their gradients
// are to be added. The slice is valid until Gradient returns, and must not be changed.
func (b *Batch) Samples() []int { return b.samples }

// Step returns the step to which the samples belong, from 1; 0 outside of a run. It may be one
// more than the last argument of Hooks.OnBegin (Model.Waits, Gradients.Delay).
func (b *Batch) Step() int64 { return b.gate.Step }

// Microbatches returns the samples by microbatch, the unit that is assigned to peers. All together
// they are Samples. The microbatches of a step are the same for any number of peers. They are valid
// until Gradient returns, and must not be changed.
func (b *Batch) Microbatches() [][]int {
	if b.micros != nil {
		return b.micros
	}
	var all [][]int
	for _, g := range b.groups {
		all = append(all, g.samples)
	}
	return all
}

// Groups returns the groups of samples. Each group must be computed as if it were alone, bit for
// bit. In exact mode the groups are the microbatches, otherwise b is the only group. Only a Grouped
// model gets several groups.
//
// Each group is a Batch. The groups share one gradient memory, one after the other: for a
// parameter, or a piece of it, the first group adds its gradient and calls its Done, which sets the
// memory to zero. Then the second group does the same, and so on. Each group reports its own Loss.
func (b *Batch) Groups() []*Batch { return b.groups }

// Wait returns when the elements [from:] of the parameter may be read. It blocks only in a call
// that began before the previous step was finished: until the sums of these elements have arrived
// and the optimizer has been applied. Meanwhile it applies sums that have arrived for other
// parameters. Sums arrive in the order of Model.Params, and within a parameter from its end to its
// beginning, so a large parameter is best waited for piece by piece in that order. A Wait that does
// not block costs a comparison. After a failure it returns at once; see Err.
func (b *Batch) Wait(param, from int) {
	if b.gate.Wait != nil {
		b.gate.Wait(param, from)
	}
}

// Grad returns the memory to which the gradient of a parameter is added. The slice has the
// parameter's length, and is valid until Gradient returns. The memory may hold sums of other
// samples, so the model must add and not assign; in a Batch of several groups the memory is zero. In
// exact mode the slice begins at a multiple of exact.Alignment.
//
// The first call blocks until the previous step is finished, because that step uses the same memory
// for its gradients. So a model should first compute everything that needs no memory for gradients.
// After a failure Grad returns memory whose content is ignored.
func (b *Batch) Grad(param int) []float32 { return b.gate.Grad(param) }

// Done declares the elements [from:] of the gradient of a parameter complete, so that this part can
// be sent while others are computed. If from is 0, the whole gradient is complete. Each call for a
// parameter has a lower value of from than the previous call. Gradients without a Done become
// complete when Gradient returns. In a Batch of several groups, however, each group must declare
// each parameter complete.
func (b *Batch) Done(param, from int) {
	if b.gate.Done != nil {
		b.gate.Done(b.group, param, from)
	}
}

// Add adds values to the gradient of a parameter and declares the whole gradient complete. It is
// for models whose backward pass is a library call that returns gradients. It panics if values has
// another length than the parameter.
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

// Loss adds sum to the loss of the Batch, in addition to the result of Gradient. A model with
// several groups reports the loss of each group, so that the total does not depend on which
// groups are computed together.
func (b *Batch) Loss(sum float64) {
	if b.gate.Loss != nil {
		b.gate.Loss(b.group, sum)
	}
}

// Weight gives the samples of the Batch a weight, in place of their number: the mean gradient of a
// step is the sum of all gradients of all peers, divided by the sum of all weights, and its loss
// likewise. So a model whose loss is a mean over w tokens, say, calls Weight(w), adds the sum over
// the tokens to Grad, and returns the sum of their losses.
//
// The weight is 0, or between 2^-20 and 2^46; anything else, and a NaN, ends the job at this peer. With the weight 0
// the samples are left out: the model must add nothing to Grad, and their loss is ignored. If all weights
// of a step are 0, the step leaves parameters and optimizer as they are. A model with several groups
// gives each a weight. In one step either all calls give a weight or none, apart from the weight 0;
// otherwise the job ends with ErrWeights. Weights are refused together with Model.Waits,
// Config.Growth, and Delay and Audit of Config.Gradients.
func (b *Batch) Weight(weight float64) {
	if b.gate.Weight != nil {
		b.gate.Weight(b.group, weight)
	}
}

// Unforeseen records that the call has waited so long for samples that Model.Ahead has not named.
// Such a wait comes from a change of the shares and not from the speed of the peer, so it does not
// count in the measurements from which the next shares follow. A wait for samples that were named
// early must count: a peer that loads too slowly is slow.
func (b *Batch) Unforeseen(wait time.Duration) {
	if b.gate.Unforeseen != nil {
		b.gate.Unforeseen(wait)
	}
}

// Err returns nil as long as the result of the call will be used. Otherwise it returns the reason:
// the previous step has failed, or this peer's share has changed. Gradient may then return early
// with this error, or finish. A change of members alone is no reason to stop: the computed part of
// a step stays valid.
func (b *Batch) Err() error {
	if b.gate.Err == nil {
		return nil
	}
	return b.gate.Err()
}

// Yield lets communication make progress. On the only processor of a process (GOMAXPROCS 1, which
// elrun sets for peers that share their host's cores), messages are otherwise handled only every
// 10 to 20 ms. A model should call it about every millisecond: a call within half a millisecond
// of the previous call is free, others cost some microseconds. A model that calls Done every few
// milliseconds need not call Yield.
func (b *Batch) Yield() {
	if b.gate.Yield != nil {
		b.gate.Yield()
	}
}
