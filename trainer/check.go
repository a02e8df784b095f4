package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// CheckModel calls a model as a run does, on at least two samples, and returns an error that
// describes the first rule that the model breaks. It is meant for tests of a model; a run detects
// only some of these mistakes. The rules:
//
//   - The same samples have bit-identical gradients and losses, also if the gradients begin at
//     other multiples of exact.Alignment, and after a call with other samples.
//   - Gradients are added to the values in the memory, and do not change after Batch.Done.
//   - Parameters are not modified, and not read before they have been waited for (Model.Waits): they
//     are filled with NaN until then.
//   - Each group has the same bits as in a call of its own (Model.Grouped), and several microbatches
//     in one call give the sum of their gradients (Model.MaxSamples).
//   - Gradients are completed (Batch.Done) in the order of Model.Order.
//   - A call whose result is discarded (Batch.Err) returns, and later calls give the right result.
//   - An Updater leaves the mean as it is, and after Load of a saved state the same mean gives the same
//     parameters and the same state, bit for bit.
//
// CheckModel does not verify that gradients are right: compare them with difference quotients. It
// restores the parameters and the state of the Updater. It makes about ten calls of Gradient and takes memory for four
// gradients.
func CheckModel(m Model, samples []int) error {
	if len(samples) < 2 {
		return errors.New("trainer: check model: want two samples or more")
	}
	if err := m.check(); err != nil {
		return err
	}
	c := &checker{model: m, first: samples[:len(samples)/2], second: samples[len(samples)/2:]}
	for _, p := range m.Params {
		c.sizes, c.params = append(c.sizes, len(p.Data)), append(c.params, slices.Clone(p.Data))
	}
	for _, check := range []func() error{c.bits, c.adds, c.waits, c.groups, c.together, c.order, c.leaves, c.updates} {
		err := check()
		if changed := c.restore(); changed != nil {
			err = changed // the likely cause of the other error
		}
		if err != nil {
			return fmt.Errorf("trainer: check model: %w", err)
		}
	}
	return nil
}

// checker is a check under way.
type checker struct {
	model         Model
	sizes         []int
	params        [][]float32 // original values
	first, second []int       // samples
	// want is the result for the samples in first, with which other calls are compared.
	want computation
}

// computation is the result of a call of Gradient.
type computation struct {
	grad [][]float32
	loss float64
}

// compute calls the model on some samples. begin is the value of all elements of the gradients
// before the call.
func (c *checker) compute(samples []int, begin float32) (computation, error) {
	var o computation
	var err error
	_, o.grad = exact.Views(c.sizes)
	for _, g := range o.grad {
		fill(g, begin)
	}
	o.loss, err = c.model.Accumulate(o.grad, samples, nil)
	if err != nil {
		return o, fmt.Errorf("samples %v: %w", samples, err)
	}
	return o, nil
}

// restore restores the parameters, and returns an error for parameters that the model has modified.
func (c *checker) restore() error {
	var changed error
	for i, p := range c.model.Params {
		if !sameBits(p.Data, c.params[i]) {
			changed = errors.Join(changed, fmt.Errorf("parameter %s has changed: Gradient must not write to it", p.Name))
		}
		copy(p.Data, c.params[i])
	}
	return changed
}

// bits checks that the same samples give the same bits at other addresses and after other
// computations. Otherwise a recomputed step would change the result of the run.
func (c *checker) bits() error {
	var err error
	if c.want, err = c.compute(c.first, 0); err != nil {
		return err
	}
	if !finite(c.want.loss) {
		return fmt.Errorf("the loss of samples %v is %v: check the model with samples whose loss is finite", c.first, c.want.loss)
	}
	// First compute the same samples again at another address, then once more after other
	// samples.
	for _, before := range [][]int{nil, c.second} {
		about := fmt.Sprintf("samples %v computed again", c.first)
		if before != nil {
			about = fmt.Sprintf("samples %v computed after %v", c.first, before)
			if _, err := c.compute(before, 0); err != nil {
				return err
			}
		}
		got, err := c.compute(c.first, 0)
		if err == nil {
			err = c.equal(got, c.want, about)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// equal checks that two results have the same bits.
func (c *checker) equal(got, want computation, about string) error {
	if math.Float64bits(got.loss) != math.Float64bits(want.loss) {
		return fmt.Errorf("%s: loss %v, want %v as before: the same samples must give the same bits in every call", about, got.loss, want.loss)
	}
	for i := range want.grad {
		if !sameBits(got.grad[i], want.grad[i]) {
			return fmt.Errorf("%s: the gradient of %s has other bits than before: the same samples must give the same bits in every call", about, c.model.Params[i].Name)
		}
	}
	return nil
}

// adds checks that the model adds its gradients to the memory, and does not change them after Done:
// another goroutine may be sending them by then.
func (c *checker) adds() error {
	const begin = 1
	_, grad := exact.Views(c.sizes)
	var done [][]float32
	// left[i] is the length of the prefix of gradient i that is not complete; done has copies of
	// the complete parts.
	left := slices.Clone(c.sizes)
	for _, g := range grad {
		fill(g, begin)
		done = append(done, slices.Clone(g))
	}
	var wrong error
	_, err := c.model.Accumulate(grad, c.first, func(i, from int) {
		if i < 0 || i >= len(left) || from < 0 || from >= left[i] {
			wrong = fmt.Errorf("Done(%d, %d) out of range, twice or out of order", i, from)
			return
		}
		copy(done[i][from:left[i]], grad[i][from:left[i]])
		left[i] = from
	})
	if err = errors.Join(err, wrong); err != nil {
		return err
	}
	for i, p := range c.model.Params {
		if !sameBits(grad[i][left[i]:], done[i][left[i]:]) {
			return fmt.Errorf("the gradient of %s has changed after it was done", p.Name)
		}
		for k, g := range grad[i] {
			if want := begin + c.want.grad[i][k]; !near(g, want) {
				return fmt.Errorf("element %d of the gradient of %s was %v and became %v, want %v: add the gradient to the element instead of overwriting it", k, p.Name, float32(begin), g, want)
			}
		}
	}
	return nil
}

// waits checks that the model reads parameters only after it has waited for them. Until then they
// are filled with NaN here, so that the result becomes NaN if the model reads a parameter too early.
func (c *checker) waits() error {
	if !c.model.Waits {
		return nil
	}
	for _, p := range c.model.Params {
		fill(p.Data, float32(math.NaN()))
	}
	// If the model returns without waiting for all parameters, the remaining NaNs must not count as
	// a modification by the model.
	defer func() { _ = c.restore() }()
	var got computation
	_, got.grad = exact.Views(c.sizes)
	l := call{asked: slices.Clone(c.sizes), losses: make([]float64, 1), broken: func() error { return nil }}
	l.coming = func(i, from int) error {
		copy(c.model.Params[i].Data[from:], c.params[i][from:])
		return nil
	}
	// The first call of Grad returns when the previous step is finished. After that call the model
	// may read every parameter.
	l.opening = func() {
		for i, p := range c.model.Params {
			copy(p.Data, c.params[i])
		}
		l.sink = sink{got.grad, func(int, int, int) {}, func() error { return nil }}
	}
	l.groups = [][]int{c.first}
	if err := l.run(c.model); err != nil {
		return fmt.Errorf("samples %v: %w", c.first, err)
	}
	got.loss = l.losses[0]
	if err := c.equal(got, c.want, fmt.Sprintf("samples %v, with each parameter set only when the model calls Wait for it", c.first)); err != nil {
		return fmt.Errorf("%w: call Wait before each parameter is read", err)
	}
	return nil
}

// groups checks that each of two groups gets the same bits as in a call of its own.
func (c *checker) groups() error {
	if !c.model.Grouped {
		return nil
	}
	alone := []computation{c.want}
	other, err := c.compute(c.second, 0)
	if err != nil {
		return err
	}
	alone = append(alone, other)
	_, shared := exact.Views(c.sizes)
	got, left := make([]computation, 2), make([][]int, 2)
	for k := range got {
		_, got[k].grad = exact.Views(c.sizes)
		left[k] = slices.Clone(c.sizes)
	}
	// The gate separates the groups as exact mode does: it copies each finished part, and leaves
	// zeros for the next group.
	b := NewBatch([][]int{c.first, c.second}, Gate{
		Grad: func(i int) []float32 { return shared[i] },
		Loss: func(k int, sum float64) { got[k].loss += sum },
		Done: func(k, i, from int) {
			copy(got[k].grad[i][from:left[k][i]], shared[i][from:left[k][i]])
			clear(shared[i][from:left[k][i]])
			left[k][i] = from
		},
	})
	rest, err := c.model.Gradient(b)
	if err != nil {
		return err
	}
	got[1].loss += rest
	for k := range got {
		if i := slices.IndexFunc(left[k], func(n int) bool { return n > 0 }); i >= 0 {
			return fmt.Errorf("Done(%d, 0) of group %d was not called: a Grouped model has to call Done for every parameter in every group", i, k)
		}
		if err := c.equal(got[k], alone[k], fmt.Sprintf("group %d of two", k)); err != nil {
			return err
		}
	}
	return nil
}

// together checks that the gradient of several samples in one call is the sum of their gradients.
func (c *checker) together() error {
	other, err := c.compute(c.second, 0)
	if err != nil {
		return err
	}
	all, err := c.compute(slices.Concat(c.first, c.second), 0)
	if err != nil {
		return err
	}
	// Rounding depends on the order of a sum, so the comparison has a tolerance.
	if want := c.want.loss + other.loss; math.Abs(all.loss-want) > 1e-3*(1+math.Abs(want)) {
		return fmt.Errorf("the loss of all samples is %v in one call and %v in two: it has to be the sum over the samples", all.loss, want)
	}
	for i, p := range c.model.Params {
		for k, g := range all.grad[i] {
			if want := c.want.grad[i][k] + other.grad[i][k]; !near(g, want) {
				return fmt.Errorf("element %d of the gradient of %s is %v in one call of all samples and %v in two: it has to be the sum over the samples", k, p.Name, g, want)
			}
		}
	}
	return nil
}

// order checks that gradients are completed in the order of Model.Order. Buckets follow this order,
// so a wrong order would delay the reductions.
func (c *checker) order() error {
	if c.model.Order == nil {
		return nil
	}
	for _, overlapped := range []bool{true, false} { // the model stays in the simpler order
		order := c.model.Order(overlapped)
		l := newLayout(c.model.Params, 1)
		if err := l.completeIn(order); err != nil {
			return err
		}
		_, grad := exact.Views(c.sizes)
		var told []Piece
		_, err := c.model.Accumulate(grad, c.first, func(i, from int) {
			if p := (Piece{i, from}); slices.Contains(order, p) {
				told = append(told, p)
			}
		})
		if err == nil && !slices.Equal(told, order) {
			err = fmt.Errorf("gradients were done in the order %v, want %v", told, order)
		}
		if err != nil {
			return fmt.Errorf("Order(%t): %w", overlapped, err)
		}
	}
	return nil
}

// leaves checks that a call returns if its result is discarded, and that the next call is right.
func (c *checker) leaves() error {
	useless := errors.New("of no use")
	_, grad := exact.Views(c.sizes)
	_, err := c.model.Gradient(NewBatch([][]int{c.second}, Gate{
		Grad: func(i int) []float32 { return grad[i] },
		Err:  func() error { return useless },
	}))
	if err != nil && !errors.Is(err, useless) {
		return fmt.Errorf("a call whose result is discarded (Batch.Err): %w", err)
	}
	got, err := c.compute(c.first, 0)
	if err != nil {
		return err
	}
	return c.equal(got, c.want, "after a call whose result was discarded (Batch.Err)")
}

// updates checks that equal parameters, states and means give equal updates: every peer applies every
// step, and a newcomer begins with a saved state.
func (c *checker) updates() (err error) {
	u := c.model.Updater
	if u == nil {
		return nil
	}
	before, err := u.Save()
	if err != nil {
		return fmt.Errorf("Updater.Save: %w", err)
	}
	begin := func() error {
		_ = c.restore()
		if err := u.Load(slices.Clone(before)); err != nil {
			return fmt.Errorf("Updater.Load of a saved state: %w", err)
		}
		return nil
	}
	defer func() { err = errors.Join(err, begin()) }()
	var params [2][][]float32
	var states [2][]byte
	for k := range params {
		if params[k], states[k], err = c.update(); err != nil {
			return err
		}
		if err := begin(); err != nil {
			return err
		}
	}
	for i, p := range c.model.Params {
		if !sameBits(params[0][i], params[1][i]) {
			return fmt.Errorf("the Updater gave %s other bits after Load of the state before: Save must return all that Apply needs", p.Name)
		}
	}
	if !slices.Equal(states[0], states[1]) {
		return errors.New("the Updater has another state after the same update: Save must return the same bytes for the same state")
	}
	return nil
}

// update lets the Updater apply a step, and returns the parameters and the state after it.
func (c *checker) update() (params [][]float32, state []byte, err error) {
	_, mean := exact.Views(c.sizes)
	for i, g := range c.want.grad {
		copy(mean[i], g)
	}
	samples := int64(len(c.first))
	step := optim.Commit{Step: 1, Peers: 1, Samples: samples, Weight: float64(samples), Loss: c.want.loss / float64(samples)}
	for i, v := range c.model.Grads {
		copy(v, mean[i])
	}
	if err := c.model.Updater.Apply(step, mean); err != nil {
		return nil, nil, fmt.Errorf("Updater.Apply: %w", err)
	}
	for i, p := range c.model.Params {
		if !sameBits(mean[i], c.want.grad[i]) {
			return nil, nil, fmt.Errorf("the Updater has changed the mean gradient of %s: copy it before you clip or scale it", p.Name)
		}
		params = append(params, slices.Clone(p.Data))
	}
	if state, err = c.model.Updater.Save(); err != nil {
		return nil, nil, fmt.Errorf("Updater.Save: %w", err)
	}
	return params, state, nil
}

// sameBits reports whether two vectors have the same bits.
func sameBits(a, b []float32) bool { return slices.Equal(kernel.Bytes(a), kernel.Bytes(b)) }

// near reports whether two sums are equal up to rounding. The tolerance covers sums in another
// order; a gradient that is not added, or added twice, differs by more.
func near(a, b float32) bool {
	return math.Abs(float64(a)-float64(b)) <= 1e-3*(1+math.Abs(float64(b)))
}

// fill sets every element of v to x.
func fill(v []float32, x float32) {
	for i := range v {
		v[i] = x
	}
}
