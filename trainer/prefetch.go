package trainer

import (
	"context"
	"sync"

	"github.com/elrun/elrun/trainer/internal/ledger"
)

// prefetcher has the samples read ahead that this peer will need. What is wanted changes with
// every step and every change of the shares. So the step leaves the newest list in a box,
// in place of one that nobody has taken, and a goroutine takes it when it is done with the
// one before: the step never waits, one call is under way at most, and what has been asked
// for is asked for once.
type prefetcher struct {
	box     chan []need // holds one list at most; nil without a function
	read    func(ctx context.Context, samples []int)
	working sync.WaitGroup

	asked []need // the worker's: what has been asked for of the steps of the last list
}

// need is the microbatches of a step that this peer will compute.
type need struct {
	plan   stepPlan
	micros ledger.Set
}

// newPrefetcher returns an ahead that has a function read; it does nothing if that is nil.
func newPrefetcher(read func(ctx context.Context, samples []int)) *prefetcher {
	a := &prefetcher{read: read}
	if read != nil {
		a.box = make(chan []need, 1)
	}
	return a
}

// start starts the worker. The function that it returns ends it, and waits until the last
// call of the model has come back.
func (a *prefetcher) start(ctx context.Context) (stop func()) {
	if a.box == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	a.working.Go(func() { a.work(ctx) })
	return func() {
		cancel()
		a.working.Wait()
	}
}

// want replaces what is wanted. One goroutine calls it, so the box is empty when it puts
// the list there.
func (a *prefetcher) want(needs []need) {
	select {
	case <-a.box:
	default:
	}
	a.box <- needs
}

// work carries out what is wanted until ctx ends.
func (a *prefetcher) work(ctx context.Context) {
	for ctx.Err() == nil { // select may take the box though ctx has ended
		select {
		case <-ctx.Done():
		case needs := <-a.box:
			if samples := a.fresh(needs); len(samples) > 0 {
				a.read(ctx, samples)
			}
		}
	}
}

// fresh returns the samples of what is wanted that have not been asked for, in the order
// in which they will be computed, and takes note of them. Steps that are wanted no more
// are forgotten.
func (a *prefetcher) fresh(needs []need) []int {
	var samples []int
	var asked []need
	for _, n := range needs {
		known := ledger.NewSet(n.plan.microbatches)
		for _, before := range a.asked {
			if before.plan.step == n.plan.step {
				known = before.micros
			}
		}
		for _, k := range n.micros.Without(known) {
			samples = n.plan.appendSamples(samples, k)
			known.Add(k)
		}
		asked = append(asked, need{n.plan, known})
	}
	a.asked = asked
	return samples
}
