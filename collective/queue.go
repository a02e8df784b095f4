package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
)

// queue holds the non-blocking calls of a communicator in shared memory. They are executed one
// after the other in any case, so a single goroutine executes all of them; it runs while the queue
// has calls. Only the first call is in progress, and all others wait for it, so the watchdog sees
// only the first. The queue is guarded by endpoint.mu.
type queue struct {
	calls []queuedCall // this memory is reused, so a call allocates only its handle and its body
	first int          // index of the first call that has not ended
	begun bool         // the first call is in progress
	// running is set while the goroutine runs.
	running bool
	guard   *guard // guard of the last call that has a guard
}

// queuedCall is a call in a queue.
type queuedCall struct {
	*Handle
	call   transport.Call
	seq    uint32 // place in the sequence
	ticket uint32 // of the lock of the lane
	argErr error  // plan.err
	body   func(*operation) error
	guard  *guard // nil if the context of the call never ends
}

// add appends a call and starts the goroutine if it does not run. fresh is the guard of the call if
// this guard is new and does not watch its context yet, and nil otherwise. The caller holds
// endpoint.mu.
func (q *queue) add(ctx context.Context, p *plan, h *Handle) (fresh *guard) {
	c, e := h.comm, q.push()
	e.Handle, e.call, e.argErr, e.body = h, p.call, p.err, p.body
	e.seq, e.ticket = c.seq.next(), c.lane.lock.nextTicket()
	if ctx != nil && ctx.Done() != nil {
		e.guard, fresh = q.guardFor(ctx)
	}
	if !q.running {
		q.running = true
		c.working.Add(1)
		go q.run(c.endpoint)
	}
	return fresh
}

// push appends an empty call. If more than half of the memory belongs to calls that have ended, it
// moves the calls to the front instead of allocating more.
func (q *queue) push() *queuedCall {
	if n := len(q.calls); n == cap(q.calls) && q.first > n/2 {
		rest := copy(q.calls, q.calls[q.first:])
		clear(q.calls[rest:])
		q.calls, q.first = q.calls[:rest], 0
	}
	q.calls = append(q.calls, queuedCall{})
	return &q.calls[len(q.calls)-1]
}

// run executes the calls until the queue is empty. If a call ends the goroutine (runtime.Goexit in
// the user's reduction), a new goroutine continues.
func (q *queue) run(ep *endpoint) {
	empty := false
	defer func() {
		if empty {
			ep.working.Done()
		} else {
			go q.run(ep)
		}
	}()
	for {
		e, o := q.next(ep)
		if o == nil {
			empty = true
			return
		}
		e.execute(o, e.guard.context(), e.argErr, e.body)
	}
}

// next removes the call that has ended, and begins the next one. It returns a nil operation
// if the queue is empty.
func (q *queue) next(ep *endpoint) (e queuedCall, o *operation) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	// The entry is cleared, so that the queue does not keep the vectors of a call that has ended.
	if q.begun {
		q.calls[q.first] = queuedCall{}
		q.first++
	}
	q.begun = q.first < len(q.calls)
	if !q.begun {
		q.calls, q.first, q.running, q.guard = q.calls[:0], 0, false, nil
		return e, nil
	}
	e = q.calls[q.first]
	o = ep.register(ep.untracked == nil)
	o.describe(e.comm, &e.call)
	o.peer, o.env.Seq, o.guard = -1, e.seq, e.guard
	o.lock, o.ticket = e.comm.lane.lock, e.ticket
	o.record()
	return e, o
}

// find returns the queued call with a sequence number. The watchdog needs it to answer a rank that
// asks about a call which has not begun here.
func (q *queue) find(seq uint32) (c transport.Call, ok bool) {
	for i := range q.calls[q.first:] {
		if e := &q.calls[q.first+i]; e.seq == seq {
			return e.call, true
		}
	}
	return transport.Call{}, false
}

// guard revokes when a context ends. It is shared by consecutive queued calls that were
// made with the same context.
type guard struct {
	ctx   context.Context
	calls int // number of calls that use the guard; guarded by endpoint.mu, as is stop
	// stop ends the watching of ctx; it is nil before watch was called.
	stop func() bool
}

// guardFor returns the guard of one more call. The guard of the previous call is reused if it is
// still in use and its context is the same. Otherwise fresh is the new guard, on which the caller
// must call watch.
func (q *queue) guardFor(ctx context.Context) (g, fresh *guard) {
	if q.guard == nil || q.guard.calls == 0 || q.guard.ctx.Done() != ctx.Done() {
		fresh = &guard{ctx: ctx}
		q.guard = fresh
	}
	q.guard.calls++
	return q.guard, fresh
}

// watch begins to watch the context, unless the calls of the guard have ended meanwhile.
func (g *guard) watch(ep *endpoint) {
	stop := context.AfterFunc(g.ctx, func() { ep.revoke(context.Cause(g.ctx)) })
	ep.mu.Lock()
	over := g.calls == 0
	g.stop = stop
	ep.mu.Unlock()
	if over {
		stop()
	}
}

// unref decrements the number of calls. For the last call it returns the function that stops
// watching the context. The caller holds endpoint.mu.
func (g *guard) unref() (stop func() bool) {
	if g.calls--; g.calls > 0 {
		return nil
	}
	return g.stop
}

// context returns the context of the guard; for a nil guard a context that never ends.
func (g *guard) context() context.Context {
	if g == nil {
		return context.Background()
	}
	return g.ctx
}
