package trainer

import "github.com/elrun/elrun/trainer/optim"

// pipeline has the parameters and the optimizer's memory. They may be updated with a step that is
// not committed yet, one by one and large ones in parts, as their sums come in, so that the next
// step can begin. The step may still fail, so what a parameter was is kept until the commit.
type pipeline struct {
	params [][]float32   // the model's memory
	slots  [][][]float32 // by parameter: what the optimizer keeps

	was  [][][]float32 // by parameter: what it and its slots were
	from []int         // by parameter: from there on it was updated with a step that is not committed
}

// updateBlock is how many elements are updated at a time, so that they stay in the cache.
const updateBlock = 8 << 10

// newPipeline returns a pipeline of parameters and fresh memory of their optimizer.
func newPipeline(params []Param, o optim.Optimizer) *pipeline {
	p := &pipeline{}
	for _, param := range params {
		p.params = append(p.params, param.Data)
		p.slots = append(p.slots, optim.NewState(o, len(param.Data)))
	}
	return p
}

// reserve takes the memory that the first step needs which is begun in the one before.
func (p *pipeline) reserve() {
	if p.was != nil {
		return
	}
	p.from = make([]int, len(p.params))
	for i, param := range p.params {
		p.from[i] = len(param)
		old := [][]float32{make([]float32, len(param))}
		for range p.slots[i] {
			old = append(old, make([]float32, len(param)))
		}
		p.was = append(p.was, old)
	}
}

// update makes the sum of parameter i over all samples of a step their mean, from an element
// on, and updates as much of the parameter with it, as commit would. It goes through all of
// them in blocks, and ends with ErrNotFinite before one whose sum is not finite.
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

// move updates parameter i from an element on, up to where it was updated already, and keeps what
// it was. state is room for a part of each slot.
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

// advance updates all parameters with a mean gradient that is there.
func (p *pipeline) advance(mean [][]float32, apply rule) {
	for i := range p.params {
		state := make([][]float32, len(p.slots[i]))
		for p.from[i] > 0 {
			at := max(0, p.from[i]-updateBlock)
			p.move(i, at, mean[i][at:p.from[i]], apply, state)
		}
	}
}

// left returns how many elements of parameter i, from the first on, are as the last committed
// step has left them. The others were updated with the step after it.
func (p *pipeline) left(i int) int {
	if p.from == nil {
		return len(p.params[i])
	}
	return p.from[i]
}

// remaining returns what is left of parameter i, and its slots.
func (p *pipeline) remaining(i int) (param []float32, slots [][]float32) {
	n := p.left(i)
	for _, slot := range p.slots[i] {
		slots = append(slots, slot[:n])
	}
	return p.params[i][:n], slots
}

// committed returns parameter i and its slots as they are after the last committed step.
func (p *pipeline) committed(i int) (param []float32, slots [][]float32) {
	n := p.left(i)
	if n == len(p.params[i]) {
		return p.params[i], p.slots[i]
	}
	was := p.was[i]
	copy(was[0][:n], p.params[i])
	for k, slot := range p.slots[i] {
		copy(was[1+k][:n], slot)
	}
	return was[0], was[1:]
}

// vectors returns the parameters and then the optimizer's memory, as they are after the last
// committed step.
func (p *pipeline) vectors() [][]float32 {
	var params, memory [][]float32
	for i := range p.params {
		param, slots := p.committed(i)
		params, memory = append(params, param), append(memory, slots...)
	}
	return append(params, memory...)
}

// commit takes note that a step is committed.
func (p *pipeline) commit() {
	for i := range p.from {
		p.from[i] = len(p.params[i])
	}
}

// rollback makes the parameters again what they were, unless the step was committed.
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

// scratch is a sink for gradients that nobody reads, while nothing is updated.
func (p *pipeline) scratch() sink {
	grad := make([][]float32, len(p.was))
	for i, was := range p.was {
		grad[i] = was[0]
	}
	return sink{grad, func(int, int, int) {}, func() error { return nil }}
}
