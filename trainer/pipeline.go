package trainer

import "github.com/elrun/elrun/trainer/optim"

// pipeline owns the parameters and the optimizer state, and allows updates with a step that is
// not committed yet, so that the next step can begin. Parameters are updated one by one, large
// ones in blocks, as their sums arrive. The step may still fail, so the previous values are kept
// until the commit (an undo log).
//
// Invariant: in parameter i, the elements [:from[i]] have the committed values. The other elements
// have the values after the open step, and their committed values are in the field was.
type pipeline struct {
	params [][]float32   // the model's memory, by parameter
	slots  [][][]float32 // optimizer state, by parameter

	// was is the undo log, by parameter: committed values of the parameter, then of each of its
	// optimizer slots. For parameter i it is valid from element from[i] on.
	was [][][]float32
	// from has, by parameter, the first element that is updated with the uncommitted step.
	from []int
}

// updateBlock is the number of elements per update; a block stays in the cache.
const updateBlock = 8 << 10

// newPipeline returns a pipeline with fresh optimizer state. The vectors in params still belong to
// the model; the pipeline writes to them.
func newPipeline(params []Param, o optim.Optimizer) *pipeline {
	p := &pipeline{}
	for _, param := range params {
		p.params = append(p.params, param.Data)
		p.slots = append(p.slots, optim.NewState(o, len(param.Data)))
	}
	return p
}

// reserve allocates the memory of the undo log, before the first step that begins early.
func (p *pipeline) reserve() {
	if p.was != nil {
		return
	}
	p.from = make([]int, len(p.params))
	for i, param := range p.params {
		// Nothing is updated yet, so nothing would be rolled back.
		p.from[i] = len(param)
		old := [][]float32{make([]float32, len(param))}
		for range p.slots[i] {
			old = append(old, make([]float32, len(param)))
		}
		p.was = append(p.was, old)
	}
}

// update turns the elements [from:] of the sum of parameter i into the mean over the samples, and
// updates that part of the parameter exactly as commit would. It works in blocks. If the sum of a
// block is not finite, it returns ErrNotFinite and leaves the block unchanged.
func (p *pipeline) update(i, from int, sum []float32, samples int64, apply rule) error {
	state := make([][]float32, len(p.slots[i]))
	for end := p.from[i]; end > from; end = p.from[i] {
		at := max(from, end-updateBlock)
		if !allFinite(sum[at:end]) {
			return ErrNotFinite
		}
		makeMean(sum[at:end], samples)
		p.move(i, at, sum[at:end], apply, state)
	}
	return nil
}

// move updates the elements [at:from[i]] of parameter i, directly before the updated part, and saves
// their committed values. state is scratch space for one subslice per slot.
func (p *pipeline) move(i, at int, mean []float32, apply rule, state [][]float32) {
	end := p.from[i]
	param := p.params[i][at:end]
	copy(p.was[i][0][at:end], param)
	for k, slot := range p.slots[i] {
		state[k] = slot[at:end]
		copy(p.was[i][1+k][at:end], state[k])
	}
	apply(param, mean, state)
	p.from[i] = at
}

// advance updates all parameters with a mean gradient that is complete.
func (p *pipeline) advance(mean [][]float32, apply rule) {
	for i := range p.params {
		state := make([][]float32, len(p.slots[i]))
		for p.from[i] > 0 {
			at := max(0, p.from[i]-updateBlock)
			p.move(i, at, mean[i][at:p.from[i]], apply, state)
		}
	}
}

// left returns the length of the prefix of parameter i that is not updated yet and has the
// committed values.
func (p *pipeline) left(i int) int {
	if p.from == nil {
		return len(p.params[i])
	}
	return p.from[i]
}

// remaining returns the prefix of parameter i that is not updated yet, and the same prefix of its
// slots.
func (p *pipeline) remaining(i int) (param []float32, slots [][]float32) {
	n := p.left(i)
	for _, slot := range p.slots[i] {
		slots = append(slots, slot[:n])
	}
	return p.params[i][:n], slots
}

// committed returns the committed values of parameter i and its slots. The results may share
// memory with the undo log.
func (p *pipeline) committed(i int) (param []float32, slots [][]float32) {
	n := p.left(i)
	if n == len(p.params[i]) {
		return p.params[i], p.slots[i]
	}
	was := p.was[i]
	// The undo log has only the updated part; add the part that is not updated, so that the whole
	// vector is in one place.
	copy(was[0][:n], p.params[i])
	for k, slot := range p.slots[i] {
		copy(was[1+k][:n], slot)
	}
	return was[0], was[1:]
}

// vectors returns the committed values of all parameters, then of the optimizer state.
func (p *pipeline) vectors() [][]float32 {
	var params, memory [][]float32
	for i := range p.params {
		param, slots := p.committed(i)
		params, memory = append(params, param), append(memory, slots...)
	}
	return append(params, memory...)
}

// commit makes the updated values the committed values.
func (p *pipeline) commit() {
	for i := range p.from {
		p.from[i] = len(p.params[i])
	}
}

// rollback restores the committed values; after a commit it does nothing.
func (p *pipeline) rollback() {
	for i, from := range p.from {
		if from == len(p.params[i]) {
			continue
		}
		copy(p.params[i][from:], p.was[i][0][from:])
		for k, slot := range p.slots[i] {
			copy(slot[from:], p.was[i][1+k][from:])
		}
	}
	p.commit()
}

// scratch returns a sink for the gradients of a call whose result is discarded. It uses the memory
// of the undo log, so no parameter may be updated meanwhile.
func (p *pipeline) scratch() sink {
	grad := make([][]float32, len(p.was))
	for i, was := range p.was {
		grad[i] = was[0]
	}
	return sink{grad, func(int, int, int) {}, func() error { return nil }}
}
