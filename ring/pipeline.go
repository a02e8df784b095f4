package ring

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/elrun/elrun/internal/kernel"
)

// errUnwound ends the sender when Fold panics.
var errUnwound = errors.New("reduction panicked")

// pipeline carries out the schedule of one rank over its link: the caller's
// goroutine receives, a second one sends. They share nothing but progress and the
// elements, which are handed over in the order of progress.
type pipeline[T Number] struct {
	schedule
	link     Link
	memory   func(words int) []uint64 // may be nil
	dst, src []T
	fold     func(dst, a, b []T)
	// scattered: dst is the chunk of the last hop, not the whole vector.
	scattered bool

	work     []T // where scattered: two slots for the sums of the hops before the last
	scratch  []T // a received segment that is yet to be folded
	progress progress
}

// run returns the first error of either side, when both have ended.
func (p *pipeline[T]) run(ctx context.Context) error {
	p.allocate()
	ctx, cancel := context.WithCancelCause(ctx)
	p.progress.init(cancel)
	var sender sync.WaitGroup
	ended := false
	defer func() {
		if !ended { // Fold panicked: the sender must not outlive the call even so
			p.progress.fail(errUnwound)
			sender.Wait()
		}
		cancel(nil) // after success this only lets go of the caller's ctx
	}()
	sender.Go(func() { p.progress.end(p.send(ctx)) })
	p.progress.end(p.receive(ctx))
	sender.Wait()
	ended = true
	return p.progress.err
}

// allocate takes the buffers. Their number does not depend on the length of the
// vector, nor does the length of scratch.
func (p *pipeline[T]) allocate() {
	if p.folds > 0 {
		p.scratch = p.vector(min(p.segment, p.longest()))
	}
	if p.scattered && p.hops > 1 {
		p.work = p.vector(2 * p.longest())
	}
}

// vector returns n elements of the caller's memory, or of new memory.
func (p *pipeline[T]) vector(n int) []T {
	if p.memory == nil {
		return make([]T, n)
	}
	return kernel.View[T](p.memory(kernel.Words[T](n)), n)
}

// send sends the first chunk from src and then every received segment but those
// of the last hop, in order.
func (p *pipeline[T]) send(ctx context.Context) error {
	return p.eachSend(func(s step) error {
		if err := p.progress.await(&p.progress.received, s.after); err != nil {
			return err
		}
		from := p.own(s.chunk)
		if s.hop > 0 {
			from = p.place(s.hop-1, s.chunk)
		}
		if err := p.link.Send(ctx, kernel.Bytes(from[s.lo:s.hi])); err != nil {
			return fmt.Errorf("ring: send chunk %d at hop %d: %w", s.chunk, s.hop, err)
		}
		p.progress.advance(&p.progress.sent)
		return nil
	})
}

// receive receives every segment, folds it or leaves it as it came, and hands it
// to the sender.
func (p *pipeline[T]) receive(ctx context.Context) error {
	return p.eachReceive(func(s step) error {
		if err := p.progress.await(&p.progress.sent, s.after); err != nil {
			return err
		}
		to := p.place(s.hop, s.chunk)[s.lo:s.hi]
		in := to
		if s.fold {
			in = p.scratch[:len(to)]
		}
		if err := p.link.Recv(ctx, kernel.Bytes(in)); err != nil {
			return fmt.Errorf("ring: receive chunk %d at hop %d: %w", s.chunk, s.hop, err)
		}
		if s.fold {
			p.fold(to, in, p.own(s.chunk)[s.lo:s.hi])
		}
		p.progress.advance(&p.progress.received)
		return nil
	})
}

// own returns this rank's elements of chunk c.
func (p *pipeline[T]) own(c int) []T { return p.src[p.bounds[c]:p.bounds[c+1]] }

// place returns where chunk c lies that is received at hop h.
func (p *pipeline[T]) place(h, c int) []T {
	if !p.scattered {
		return p.dst[p.bounds[c]:p.bounds[c+1]]
	}
	if h == p.hops-1 {
		return p.dst
	}
	slot := p.work[h%2*(len(p.work)/2):]
	return slot[:p.length(c)]
}

// progress counts the finished segments of the two sides of a pipeline and ends
// both when either fails. The counters never make a side wait but for its data:
// nothing fills up.
type progress struct {
	cancel context.CancelCauseFunc // interrupts the links

	mu             sync.Mutex
	changed        sync.Cond
	received, sent int
	err            error // the first
}

func (p *progress) init(cancel context.CancelCauseFunc) {
	p.cancel = cancel
	p.changed.L = &p.mu
}

// advance counts one more segment.
func (p *progress) advance(counter *int) {
	p.mu.Lock()
	*counter++
	p.mu.Unlock()
	p.changed.Signal() // at most the other side waits
}

// await waits until counter has reached n. It needs no ctx: one side at least is
// always in the link, which ends with ctx, and its error ends the wait.
func (p *progress) await(counter *int, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for *counter < n && p.err == nil {
		p.changed.Wait()
	}
	return p.err
}

// end reports that a side has ended, with err or nil.
func (p *progress) end(err error) {
	if err != nil {
		p.fail(err)
	}
}

// fail records the first error and ends both sides.
func (p *progress) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	err = p.err
	p.mu.Unlock()
	p.changed.Signal()
	p.cancel(err)
}
