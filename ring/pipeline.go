package ring

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/elrun/elrun/internal/kernel"
)

// errUnwound ends the sender when a reduction panics in the receiver.
var errUnwound = errors.New("reduction panicked")

// errOverlap is the error for a Ring.Memory that returns memory that is in use.
var errOverlap = fmt.Errorf("ring: %w: Memory returned memory that overlaps dst, src or its other result: return other memory for each call", ErrArgument)

// pipeline executes the schedule of one rank over its link. The caller's goroutine receives, a
// second goroutine sends, and each received segment is passed on while the next one arrives. The
// two goroutines share only progress and the elements of the vectors. The counters in progress
// determine which goroutine may use an element.
type pipeline[T Number] struct {
	schedule
	link   Link
	memory func(words int) []uint64 // working memory of the caller; nil allocates
	// dst and src are the caller's vectors.
	dst, src []T
	fold     func(dst, a, b []T) // nil if nothing is reduced
	// scattered means that dst is only the chunk of the last hop (as in a reduce-scatter), not the
	// whole vector.
	scattered bool

	work     []T // if scattered: two slots for the partial sums of all hops except the last
	scratch  []T // a received segment before it is reduced
	progress progress
}

// run executes the schedule and returns the first error of either goroutine, after both have ended.
func (p *pipeline[T]) run(ctx context.Context) error {
	if err := p.allocate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p.progress.init(cancel)
	var sender sync.WaitGroup
	ended := false
	defer func() {
		if !ended { // a reduction has panicked: even so the sender must not outlive the call
			p.progress.fail(errUnwound)
			sender.Wait()
		}
		cancel(nil) // after success this only releases the resources of ctx
	}()
	sender.Go(func() { p.progress.end(p.send(ctx)) })
	p.progress.end(p.receive(ctx))
	sender.Wait()
	ended = true
	return p.progress.err
}

// allocate gets the buffers. The number of buffers and the length of scratch do not depend on the
// length of the vector. It returns an error if the caller's memory overlaps: then partial sums would
// be overwritten before they are sent, and all ranks would agree on wrong sums.
func (p *pipeline[T]) allocate() error {
	if p.folds > 0 {
		p.scratch = p.vector(min(p.segment, p.longest()))
	}
	if p.scattered && p.hops > 1 {
		p.work = p.vector(2 * p.longest())
	}
	for _, v := range [][]T{p.dst, p.src, p.work} {
		if kernel.Overlap(p.scratch, v) {
			return errOverlap
		}
	}
	if kernel.Overlap(p.work, p.dst) || kernel.Overlap(p.work, p.src) {
		return errOverlap
	}
	return nil
}

// vector returns n elements of the caller's memory, or n newly allocated elements.
func (p *pipeline[T]) vector(n int) []T {
	if p.memory == nil {
		return make([]T, n)
	}
	return kernel.View[T](p.memory(kernel.Words[T](n)), n)
}

// send sends the first chunk from src, and then, in order, each received segment except the
// segments of the last hop.
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

// receive receives each segment, reduces it with the rank's own elements or keeps it as it is, and
// releases it to the sender.
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

// place returns the memory for chunk c when it is received at hop h.
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

// progress counts the finished segments of the two goroutines of a pipeline, and ends both when
// either fails. A goroutine waits only for the data or the memory that its next segment needs.
// There is no bounded queue between the goroutines that could cause a deadlock.
type progress struct {
	cancel context.CancelCauseFunc // interrupts calls of the link

	// mu guards the fields below.
	mu             sync.Mutex
	changed        sync.Cond // a counter or err has changed
	received, sent int       // number of finished segments
	err            error     // the first error of either goroutine
}

// init prepares p for use; cancel must interrupt calls of the link.
func (p *progress) init(cancel context.CancelCauseFunc) {
	p.cancel = cancel
	p.changed.L = &p.mu
}

// advance counts one more segment.
func (p *progress) advance(counter *int) {
	p.mu.Lock()
	*counter++
	p.mu.Unlock()
	p.changed.Signal() // only the other goroutine can be waiting
}

// await waits until counter has reached n, and returns the first error. It needs no ctx: the other
// goroutine does not wait at the same time, and its next call of the link fails when ctx ends,
// which ends this wait.
func (p *progress) await(counter *int, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for *counter < n && p.err == nil {
		p.changed.Wait()
	}
	return p.err
}

// end records that a goroutine has ended, with err or nil.
func (p *progress) end(err error) {
	if err != nil {
		p.fail(err)
	}
}

// fail records the first error and ends both goroutines.
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
