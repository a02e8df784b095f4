package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
)

// queue holds the non-blocking calls in shared memory of a communicator. They go one after
// the other in any case, so one goroutine, which lives while there are any, carries out all of
// them. Only the first is in progress: the watch looks after that one, for which all others
// wait. It is used under the world's lock.
type queue struct {
	calls []queuedCall // memory that is used again: a call has no other than its handle and body
	first int          // of calls that have not ended
	begun bool         // the first call has
	// running is set while the goroutine is there.
	running bool
	guard   *guard // of the last call that has one
}

// queuedCall is a call in a queue.
type queuedCall struct {
	*Handle
	call   transport.Call
	seq    uint32
	ticket uint32
	wrong  error // the arguments do not fit
	body   func(*operation) error
	guard  *guard // nil if its context does not end
}

// enqueue gives a call its place in the sequence and adds it to the queue.
func (c *Comm) enqueue(ctx context.Context, p *plan, h *Handle) error {
	if ctx == nil {
		p.err = errNoContext
	}
	if err := c.announce(p); err != nil {
		return err
	}
	fresh, err := c.tryEnqueue(ctx, p, h)
	if fresh != nil {
		fresh.listen(c.world)
	}
	return c.refused(err)
}

// tryEnqueue is enqueue, but for what a refusal means. It returns the call's guard if that does
// not listen yet.
func (c *Comm) tryEnqueue(ctx context.Context, p *plan, h *Handle) (fresh *guard, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(p); err != nil {
		return nil, err
	}
	q := &c.seq.queue
	e := q.extend()
	e.Handle, e.call, e.wrong, e.body = h, p.call, p.err, p.body
	e.seq, e.ticket = c.seq.next(), c.lane.turns.draw()
	if ctx != nil && ctx.Done() != nil {
		e.guard, fresh = q.protect(ctx)
	}
	if !q.running {
		q.running = true
		c.working.Add(1)
		go q.run(c.world)
	}
	return fresh, nil
}

// extend makes room for one more call at the end.
func (q *queue) extend() *queuedCall {
	if n := len(q.calls); n == cap(q.calls) && q.first > n/2 { // rather than grow
		rest := copy(q.calls, q.calls[q.first:])
		clear(q.calls[rest:])
		q.calls, q.first = q.calls[:rest], 0
	}
	q.calls = append(q.calls, queuedCall{})
	return &q.calls[len(q.calls)-1]
}

// run carries out the calls. Another goroutine goes on if a call ends this one
// (runtime.Goexit).
func (q *queue) run(w *world) {
	empty := false
	defer func() {
		if empty {
			w.working.Done()
		} else {
			go q.run(w)
		}
	}()
	for {
		e, o := q.next(w)
		if o == nil {
			empty = true
			return
		}
		e.carryOut(o, e.guard.context(), e.wrong, e.body)
	}
}

// next takes the call that has ended from the queue, and begins the one after it: no
// operation if there is none.
func (q *queue) next(w *world) (e queuedCall, o *operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
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
	o = w.enrol(w.brief == nil)
	o.describe(e.comm, &e.call)
	o.peer, o.env.Seq, o.guard = -1, e.seq, e.guard
	o.turns, o.ticket = e.comm.lane.turns, e.ticket
	return e, o
}

// find returns the call at a place in the sequence.
func (q *queue) find(seq uint32) (c transport.Call, ok bool) {
	for i := range q.calls[q.first:] {
		if e := &q.calls[q.first+i]; e.seq == seq {
			return e.call, true
		}
	}
	return transport.Call{}, false
}

// guard lets the end of a context revoke while calls are in the queue that were made with it,
// one after the other.
type guard struct {
	ctx   context.Context
	calls int         // under the world's lock, as is the next
	stop  func() bool // ends the listening; nil before it has begun
}

// protect returns the guard of one more call: that of the call before if the two have one
// context, or else a fresh one, which has to listen.
func (q *queue) protect(ctx context.Context) (g, fresh *guard) {
	if q.guard == nil || q.guard.calls == 0 || q.guard.ctx.Done() != ctx.Done() {
		fresh = &guard{ctx: ctx}
		q.guard = fresh
	}
	q.guard.calls++
	return q.guard, fresh
}

// listen begins to listen, unless the guard's calls have ended.
func (g *guard) listen(w *world) {
	stop := context.AfterFunc(g.ctx, func() { w.revoke(context.Cause(g.ctx)) })
	w.mu.Lock()
	over := g.calls == 0
	g.stop = stop
	w.mu.Unlock()
	if over {
		stop()
	}
}

// release counts one call less and returns what ends the listening if it was the last one. The
// caller holds the world's lock.
func (g *guard) release() (stop func() bool) {
	if g.calls--; g.calls > 0 {
		return nil
	}
	return g.stop
}

// context returns the context of the guard's calls, or without a guard one that does not end.
func (g *guard) context() context.Context {
	if g == nil {
		return context.Background()
	}
	return g.ctx
}
