package trainer

import (
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective"
)

// housing is memory that the ranks of this host share, from which reductions need not
// copy. It outlives sessions: vectors stay in it until a session has other memory, as it
// has when this peer comes back under another identity, or the run ends.
type housing struct {
	comm *collective.Comm // of a session with that memory; nil if there was none
	free []func() error   // one for each vector
}

// house moves the vectors that are reduced into the memory of a session, if it has some
// and they are not there yet. Elsewhere they serve as well, which only takes longer: so
// that there is no room is told once, and is no error.
func (r *runner) house(c *collective.Comm) {
	if !c.SharesMemory() || r.housing.comm != nil && c.SameMemory(r.housing.comm) {
		return
	}
	now := housing{comm: c}
	if err := r.open.sums.house(&now); err != nil {
		r.log("gradients stay where they are, from where reductions copy them: %v", errors.Join(err, now.leave()))
		r.housing.comm = c
		return
	}
	_ = r.housing.leave() // what is not given back goes with the process
	r.housing = now
}

// leave gives the memory back. Nothing uses the vectors in it any more: reductions have
// ended at all ranks that use their sums, and elastic asks a runner for its state from the
// goroutine of Run only.
func (h *housing) leave() error {
	var errs []error
	for _, free := range h.free {
		errs = append(errs, free())
	}
	h.free = nil
	return errors.Join(errs...)
}

// moved returns vectors in the memory, with what is in those given. After an error some
// of them may be there.
func moved[T collective.Number](h *housing, vectors ...[]T) ([][]T, error) {
	comm, there := h.comm, make([][]T, len(vectors))
	for i, v := range vectors {
		w, err := collective.Alloc[T](comm, len(v))
		if err != nil {
			return nil, fmt.Errorf("memory for %d gradients: %w", len(v), err)
		}
		h.free = append(h.free, func() error { return collective.Free(comm, w) })
		copy(w, v)
		there[i] = w
	}
	return there, nil
}

// house moves all three: the two buffers take turns as what is reduced into.
func (p *plain) house(h *housing) error {
	there, err := moved(h, p.own.flat, p.bufs.staging.flat, p.bufs.applied.flat)
	if err != nil {
		return err
	}
	for i, v := range []*vector{&p.own, &p.bufs.staging, &p.bufs.applied} {
		*v = vector{there[i], cut(p.layout, there[i])}
	}
	return nil
}

// house moves the integers only. The buffers of floats are not reduced, and are aligned as
// computing wants it.
func (q *quantised) house(h *housing) error {
	there, err := moved(h, q.own, q.all)
	if err != nil {
		return err
	}
	q.own, q.all = there[0], there[1]
	q.views, q.parts = cut(q.layout, q.own), cut(q.layout, q.all)
	return nil
}

// house leaves all where it is, as codes travel in messages.
func (c *compressed) house(*housing) error { return nil }
