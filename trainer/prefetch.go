package trainer

import (
	"context"
	"slices"
	"sync"

	"github.com/elrun/elrun/trainer/internal/ledger"
)

// prefetcher reads the samples that this peer will need before they are used. The needs change with
// every step and every change of the shares. So each step puts its newest list into a channel of
// capacity one, in place of a list that was not taken. A goroutine takes the list when it has
// finished the previous list. The step never blocks, at most one call of Model.Prefetch is under
// way, and each sample of a step is requested once.
type prefetcher struct {
	box     chan []need                              // holds at most one list; nil without a function
	read    func(ctx context.Context, samples []int) // Model.Prefetch
	working sync.WaitGroup

	asked []need // owned by the goroutine: requests so far, for the steps of the last list
}

// need is a set of microbatches of a step that this peer will compute.
type need struct {
	plan   stepPlan
	micros ledger.Set
}

// newPrefetcher returns a prefetcher that calls read; with a nil read it does nothing.
func newPrefetcher(read func(ctx context.Context, samples []int)) *prefetcher {
	a := &prefetcher{read: read}
	if read != nil {
		a.box = make(chan []need, 1)
	}
	return a
}

// start starts the goroutine. The returned function ends it, and waits until the last call of
// Model.Prefetch has returned.
func (p *prefetcher) start(ctx context.Context) (stop func()) {
	if p.box == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	p.working.Go(func() { p.work(ctx) })
	return func() {
		cancel()
		p.working.Wait()
	}
}

// want replaces the list of needs. Only one goroutine calls want, so after the select the channel is
// empty, and the send does not block.
func (p *prefetcher) want(needs []need) {
	select {
	case <-p.box:
	default:
	}
	p.box <- needs
}

// work executes the lists until ctx ends.
func (p *prefetcher) work(ctx context.Context) {
	for ctx.Err() == nil { // select may take the box although ctx has ended
		select {
		case <-ctx.Done():
		case needs := <-p.box:
			var samples []int
			var missing []need
			missing, p.asked = fresh(needs, p.asked)
			for _, n := range missing {
				samples = append(samples, slices.Concat(n.samples()...)...)
			}
			if len(samples) > 0 {
				p.read(ctx, samples)
			}
		}
	}
}

// samples returns the samples by microbatch.
func (n need) samples() [][]int { return n.plan.samplesOf(n.micros.Without(nil)) }

// fresh returns the needs that are not among those asked for, in the order of their use, and the new
// list of needs asked for, without steps that are not in needs.
func fresh(needs, asked []need) (missing, all []need) {
	for _, n := range needs {
		known := ledger.NewSet(n.plan.microbatches)
		for _, before := range asked {
			if before.plan.step == n.plan.step {
				known = before.micros
			}
		}
		rest := ledger.NewSet(n.plan.microbatches)
		for _, k := range n.micros.Without(known) {
			rest.Add(k)
			known.Add(k)
		}
		if rest.Len() > 0 {
			missing = append(missing, need{n.plan, rest})
		}
		all = append(all, need{n.plan, known})
	}
	return missing, all
}
