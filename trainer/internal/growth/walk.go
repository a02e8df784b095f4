package growth

// Walk maps steps to places in the order of the samples. Each batch begins where the one before has
// ended. A pass ends with a step that has the remaining samples.
type Walk struct {
	Samples int // of a pass
	First   int // samples of a step before the first change
	Changes []Change
}

// Place is a place in the order of the samples: a pass, from 0, and the number of samples of this pass
// before the place.
type Place struct {
	Pass  int64
	First int
}

// after returns the place after a number of steps with one batch.
func (w Walk) after(p Place, steps int64, batch int) Place {
	batch = min(batch, w.Samples)
	rest, perPass := int64(ceilDiv(w.Samples-p.First, batch)), int64(ceilDiv(w.Samples, batch))
	if steps < rest {
		return Place{p.Pass, p.First + int(steps)*batch}
	}
	steps -= rest
	return Place{p.Pass + 1 + steps/perPass, int(steps%perPass) * batch}
}

// until returns the number of steps with one batch from p until all samples before the place end are
// taken; 0 if that is so already.
func (w Walk) until(p, end Place, batch int) int64 {
	batch = min(batch, w.Samples)
	switch {
	case p.Pass > end.Pass:
		return 0
	case p.Pass == end.Pass:
		return int64(ceilDiv(max(0, end.First-p.First), batch))
	}
	return int64(ceilDiv(w.Samples-p.First, batch)) + (end.Pass-p.Pass-1)*int64(ceilDiv(w.Samples, batch)) + int64(ceilDiv(end.First, batch))
}

// Place returns the place of the first sample of a step, counted from 1.
func (w Walk) Place(step int64) Place {
	at, from, batch := Place{}, int64(1), w.First
	for _, c := range w.Changes {
		if c.Step > step {
			break
		}
		at, from, batch = w.after(at, c.Step-from, batch), c.Step, c.Batch
	}
	return w.after(at, step-from, batch)
}

// At returns the change with the batch of a step; the first batch counts as a change at step 1.
func (w Walk) At(step int64) Change {
	last := Change{Step: 1, Batch: w.First}
	for _, c := range w.Changes {
		if c.Step <= step {
			last = c
		}
	}
	return last
}

// Last returns the number of steps that take at least the samples of the given number of steps
// without changes.
func (w Walk) Last(steps int64) int64 {
	end := w.after(Place{}, steps, w.First)
	at, from, batch := Place{}, int64(1), w.First
	for _, c := range w.Changes {
		if last := from - 1 + w.until(at, end, batch); last < c.Step {
			return last
		}
		at, from, batch = w.after(at, c.Step-from, batch), c.Step, c.Batch
	}
	return from - 1 + w.until(at, end, batch)
}

// ceilDiv returns a/b rounded up; a >= 0, b > 0.
func ceilDiv(a, b int) int { return (a + b - 1) / b }
