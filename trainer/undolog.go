package trainer

import (
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer/optim"
)

// undoLog owns the parameters and the optimizer state, and allows updates with a step that is
// not committed yet, so that the next step can begin. Parameters are updated one by one, large
// ones in blocks, as their sums arrive. The step may still fail, so the previous values are kept
// until the commit (an undo log).
//
// Invariant: in parameter i, the elements [:from[i]] have the committed values. The other elements
// have the values after the open step, and their committed values are in the field was.
type undoLog struct {
	params [][]float32   // the model's memory, by parameter
	slots  [][][]float32 // optimizer state, by parameter

	// was has, by parameter, the committed values of the parameter, then of each of its
	// optimizer slots. For parameter i it is valid from element from[i] on.
	was [][][]float32
	// from has, by parameter, the first element that is updated with the uncommitted step.
	from []int
}

// updateBlock is the number of elements per update; a block stays in the cache.
const updateBlock = 8 << 10

// newUndoLog returns an undo log with fresh optimizer state. The vectors in params still belong to
// the model; the log writes to them.
func newUndoLog(params []Param, o optim.Optimizer) *undoLog {
	u := &undoLog{}
	for _, param := range params {
		u.params = append(u.params, param.Data)
		u.slots = append(u.slots, optim.NewState(o, len(param.Data)))
	}
	return u
}

// reserve allocates the memory of the undo log, before the first step that begins early.
func (u *undoLog) reserve() {
	if u.was != nil {
		return
	}
	u.from = make([]int, len(u.params))
	for i, param := range u.params {
		// Nothing is updated yet, so nothing would be rolled back.
		u.from[i] = len(param)
		old := [][]float32{make([]float32, len(param))}
		for range u.slots[i] {
			old = append(old, make([]float32, len(param)))
		}
		u.was = append(u.was, old)
	}
}

// update divides the elements [from:] of the sum of parameter i, which makes them the mean, and
// updates that part of the parameter exactly as commit would. It works in blocks. If the sum of a
// block is not finite, it returns ErrNotFinite and leaves the block unchanged.
func (u *undoLog) update(i, from int, sum []float32, divisor float64, apply rule) error {
	state := make([][]float32, len(u.slots[i]))
	for end := u.from[i]; end > from; end = u.from[i] {
		at := max(from, end-updateBlock)
		if !kernel.Finite(sum[at:end]) {
			return ErrNotFinite
		}
		makeMean(sum[at:end], divisor)
		u.move(i, at, sum[at:end], apply, state)
	}
	return nil
}

// move updates the elements [at:from[i]] of parameter i, directly before the updated part, and saves
// their committed values. state is scratch space for one subslice per slot.
func (u *undoLog) move(i, at int, mean []float32, apply rule, state [][]float32) {
	end := u.from[i]
	param := u.params[i][at:end]
	copy(u.was[i][0][at:end], param)
	for k, slot := range u.slots[i] {
		state[k] = slot[at:end]
		copy(u.was[i][1+k][at:end], state[k])
	}
	apply(param, mean, state)
	u.from[i] = at
}

// advance updates all parameters with a mean gradient that is complete.
func (u *undoLog) advance(mean [][]float32, apply rule) {
	for i := range u.params {
		state := make([][]float32, len(u.slots[i]))
		for u.from[i] > 0 {
			at := max(0, u.from[i]-updateBlock)
			u.move(i, at, mean[i][at:u.from[i]], apply, state)
		}
	}
}

// left returns the length of the prefix of parameter i that is not updated yet and has the
// committed values.
func (u *undoLog) left(i int) int {
	if u.from == nil {
		return len(u.params[i])
	}
	return u.from[i]
}

// remaining returns the prefix of parameter i that is not updated yet, and the same prefix of its
// slots.
func (u *undoLog) remaining(i int) (param []float32, slots [][]float32) {
	n := u.left(i)
	for _, slot := range u.slots[i] {
		slots = append(slots, slot[:n])
	}
	return u.params[i][:n], slots
}

// committed returns the committed values of parameter i and its slots. The results may share
// memory with the undo log.
func (u *undoLog) committed(i int) (param []float32, slots [][]float32) {
	n := u.left(i)
	if n == len(u.params[i]) {
		return u.params[i], u.slots[i]
	}
	was := u.was[i]
	// The undo log has only the updated part; add the part that is not updated, so that the whole
	// vector is in one place.
	copy(was[0][:n], u.params[i])
	for k, slot := range u.slots[i] {
		copy(was[1+k][:n], slot)
	}
	return was[0], was[1:]
}

// vectors returns the committed values of all parameters, then of the optimizer state.
func (u *undoLog) vectors() [][]float32 {
	var params, memory [][]float32
	for i := range u.params {
		param, slots := u.committed(i)
		params, memory = append(params, param), append(memory, slots...)
	}
	return append(params, memory...)
}

// commit makes the updated values the committed values.
func (u *undoLog) commit() {
	for i := range u.from {
		u.from[i] = len(u.params[i])
	}
}

// rollback restores the committed values; after a commit it does nothing.
func (u *undoLog) rollback() {
	for i, from := range u.from {
		if from == len(u.params[i]) {
			continue
		}
		copy(u.params[i][from:], u.was[i][0][from:])
		for k, slot := range u.slots[i] {
			copy(slot[from:], u.was[i][1+k][from:])
		}
	}
	u.commit()
}

// scratch returns a sink for the gradients of a call whose result is discarded. It uses the memory
// of the undo log, so no parameter may be updated meanwhile.
func (u *undoLog) scratch() sink {
	grad := make([][]float32, len(u.was))
	for i, was := range u.was {
		grad[i] = was[0]
	}
	return sink{grad, func(int, int, int) {}, func() error { return nil }}
}
