package elastic

import "context"

// eventLoop lets other goroutines run functions in the goroutine of a driver, which owns the
// driver's state without a lock (the actor model).
type eventLoop struct {
	functions chan func()     // to be called by the driver's goroutine
	ctx       context.Context // ends when the driver is stopped
	cancel    context.CancelFunc
	ended     chan struct{} // closed when the goroutine has ended
}

// newEventLoop returns a loop without a goroutine.
func newEventLoop() eventLoop {
	l := eventLoop{functions: make(chan func()), ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// do passes f to the driver's goroutine, which calls f. It returns when the call begins. If the
// driver has ended, f is not called.
func (e *eventLoop) do(f func()) {
	select {
	case e.functions <- f:
	case <-e.ctx.Done():
	}
}

// ask calls f in the driver's goroutine and returns its result. ok is false if the driver has ended
// before f returned; f may still run then, so f must not write to variables of the caller.
func ask[T any](l *eventLoop, f func() T) (answer T, ok bool) {
	answers := make(chan T, 1)
	l.do(func() { answers <- f() })
	select {
	case answer = <-answers:
		return answer, true
	case <-l.ctx.Done():
		return answer, false
	}
}
