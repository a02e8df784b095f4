package collective

import (
	"context"
	"fmt"
	"sync"
)

// Handle is a call in progress.
type Handle struct {
	comm *Comm
	done chan struct{}
	err  error
}

// start begins a call and returns; a goroutine carries it out, and Close waits for it.
func (c *Comm) start(ctx context.Context, p plan) *Handle {
	h := &Handle{comm: c, done: make(chan struct{})}
	body, wrong := p.body, p.err // the rest of the plan is not kept
	if p.call.Algorithm == SharedMemory && c.made() {
		c.lane.queue.starting.Lock() // tasks stand in the order of the tickets
		defer c.lane.queue.starting.Unlock()
	}
	o, err := c.begin(&p, false)
	if err != nil {
		h.err = err
		close(h.done)
		return h
	}
	o.ctx = ctx
	c.background(o, func() {
		h.err = errPanicked // also of a goroutine that the user's reduction ends
		defer close(h.done)
		h.err = o.carryOut(ctx, wrong, body)
	})
	return h
}

// background carries out a call in a goroutine. Calls in shared memory go one after the
// other in any case, so one goroutine does for all of them.
func (c *Comm) background(o *operation, do func()) {
	c.working.Add(1) // the call's own place is given up before the handle knows of its end
	task := func() {
		defer c.working.Done()
		do()
	}
	if o.env.Call.Algorithm == SharedMemory {
		o.arm() // it may be long until its turn
		c.lane.queue.add(&c.working, task)
		return
	}
	go task()
}

// queue carries out tasks in their order, in a goroutine that lives while there are any.
type queue struct {
	starting sync.Mutex // from a call's ticket until its task is here

	mu      sync.Mutex
	tasks   []func()
	running bool
}

// add appends a task. working counts the goroutine.
func (q *queue) add(working *sync.WaitGroup, task func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tasks = append(q.tasks, task)
	if !q.running {
		q.running = true
		q.run(working)
	}
}

// run starts the goroutine. Another one goes on if a task ends it (runtime.Goexit).
func (q *queue) run(working *sync.WaitGroup) {
	working.Go(func() {
		empty := false
		defer func() {
			if !empty {
				q.run(working)
			}
		}()
		for task := q.next(); task != nil; task = q.next() {
			task()
		}
		empty = true
	})
}

// next takes the first task; nil if there is none.
func (q *queue) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tasks) == 0 {
		q.tasks, q.running = nil, false
		return nil
	}
	task := q.tasks[0]
	q.tasks[0] = nil
	q.tasks = q.tasks[1:]
	return task
}

// ofCall reports whether a call made h.
func (h *Handle) ofCall() bool { return h != nil && h.done != nil }

// Done is closed when the call has ended and its slices are the caller's again.
func (h *Handle) Done() <-chan struct{} {
	if !h.ofCall() {
		none := make(chan struct{})
		close(none)
		return none
	}
	return h.done
}

// Wait waits for the end of the call and returns its error. If ctx ends first, Wait
// returns that error and the call goes on, still using its slices. It may be called again,
// from several goroutines, or never: an error of the call revokes in any case.
func (h *Handle) Wait(ctx context.Context) error {
	if !h.ofCall() {
		return fmt.Errorf("collective: wait: %w: the handle is nil, or of no call", ErrArgument)
	}
	select {
	case <-h.done:
		return h.ended()
	default:
	}
	if ctx == nil {
		return fmt.Errorf("collective: wait: %w: the context is nil", ErrArgument)
	}
	select {
	case <-h.done:
		return h.ended()
	case <-ctx.Done():
		return fmt.Errorf("collective: wait: %w", context.Cause(ctx))
	}
}

// ended returns the error of a call that has ended.
func (h *Handle) ended() error {
	if h.err != nil {
		h.comm.tell(h.err)
	}
	return h.err
}
