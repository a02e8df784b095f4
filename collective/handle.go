package collective

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
)

// Handle is a call in progress. All methods are safe for concurrent use. The call owns its slices
// until Done is closed or Wait returns the call's own result: the caller must neither read nor
// write them before.
type Handle struct {
	comm *Comm
	mu   sync.Mutex
	done chan struct{} // closed at the end; nil until the first Done; guarded by mu
	err  error         // of the call; valid once over is set
	over atomic.Bool   // the call has ended
	// message describes the message of an IRecv, once over is set; nil for other calls.
	message *Message
}

// background carries out the call in a goroutine of its own. An error means that the call did not
// begin: start then ends the handle.
func (h *Handle) background(ctx context.Context, p *plan) error {
	c := h.comm
	o, err := c.begin(p, false)
	if err != nil {
		return err
	}
	argErr, body := p.err, p.body
	c.working.Add(1) // Close waits for this goroutine also after the operation itself has ended
	go func() {
		defer c.working.Done()
		h.execute(o, ctx, argErr, body)
	}()
	return nil
}

// execute runs the call to its end and ends the handle.
func (h *Handle) execute(o *operation, ctx context.Context, argErr error, body func(*operation) error) {
	err := errPanicked // also if the user's reduction ends the goroutine
	defer func() { h.end(err) }()
	err = o.execute(ctx, argErr, body)
}

// end records the error of the call and wakes its waiters.
func (h *Handle) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	h.over.Store(true)
	if h.done != nil {
		close(h.done)
	}
}

// errNoHandle is the error of a nil or zero Handle.
var errNoHandle = fmt.Errorf("collective: wait: %w: the handle is nil or not the result of a call", ErrArgument)

// isValid reports whether h was made by a call; a nil or zero Handle was not.
func (h *Handle) isValid() bool { return h != nil && h.comm != nil }

// Done returns a channel that is closed when the call has ended and its slices belong to
// the caller again.
func (h *Handle) Done() <-chan struct{} {
	if !h.isValid() {
		none := make(chan struct{})
		close(none)
		return none
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done == nil {
		h.done = make(chan struct{})
		if h.over.Load() {
			close(h.done)
		}
	}
	return h.done
}

// Wait waits for the end of the call and returns its error. If ctx ends first, Wait returns the
// error of ctx, and the call continues and still uses its slices. Wait may be called several times,
// from several goroutines, or not at all: an error of the call revokes in any case.
func (h *Handle) Wait(ctx context.Context) error {
	if !h.isValid() {
		return errNoHandle
	}
	if h.over.Load() {
		// The usual case for a call that has overlapped with computation: no channel is allocated.
		return h.ended()
	}
	if ctx == nil {
		return fmt.Errorf("collective: wait: %w", errNoContext)
	}
	select {
	case <-h.Done():
		return h.ended()
	case <-ctx.Done():
		return fmt.Errorf("collective: wait: %w", context.Cause(ctx))
	}
}

// Test reports whether the call has ended, and returns its error if it has. It does not wait.
func (h *Handle) Test() (done bool, err error) {
	switch {
	case !h.isValid():
		return true, errNoHandle
	case !h.over.Load():
		return false, nil
	}
	return true, h.ended()
}

// Message describes the message that an IRecv has received. It is the zero Message before the end of
// the call, after an error, and for other calls.
func (h *Handle) Message() Message {
	if !h.isValid() || !h.over.Load() || h.message == nil {
		return Message{}
	}
	return *h.message
}

// ended returns the error of a call that has ended. It reports an error to Options.OnError.
func (h *Handle) ended() error {
	if h.err != nil {
		h.comm.reportError(h.err)
	}
	return h.err
}

// WaitAll waits for the end of all calls, and returns the error of the first handle whose call has
// failed. A nil handle counts as ended without an error. If ctx ends first, WaitAll returns the
// error of ctx as Handle.Wait does, and the calls that have not ended continue.
func WaitAll(ctx context.Context, handles ...*Handle) error {
	var first error
	for _, h := range handles {
		if h == nil {
			continue
		}
		err := h.Wait(ctx)
		if err != nil && !h.over.Load() {
			return err // of ctx, or of a handle that no call has made
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// WaitAny waits until one of several calls has ended, and returns its index and its error. It skips
// nil handles; if all are nil it returns -1 and no error at once. So a loop that sets each returned
// handle to nil gets all calls in the order in which they end:
//
//	for {
//		i, err := collective.WaitAny(ctx, handles...)
//		if i < 0 || err != nil {
//			return err
//		}
//		handles[i] = nil
//		... // use the result of call i
//	}
//
// If ctx ends first, the index is -1, the error is that of ctx, and the calls continue.
func WaitAny(ctx context.Context, handles ...*Handle) (int, error) {
	if ctx == nil {
		return -1, fmt.Errorf("collective: wait for any call: %w", errNoContext)
	}
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	var indices []int
	for i, h := range handles {
		switch {
		case h == nil:
			continue
		case h.over.Load() || !h.isValid():
			return i, h.Wait(ctx)
		}
		indices = append(indices, i)
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(h.Done())})
	}
	if len(indices) == 0 {
		return -1, nil
	}
	chosen, _, _ := reflect.Select(cases)
	if chosen == 0 {
		return -1, fmt.Errorf("collective: wait for any call: %w", context.Cause(ctx))
	}
	i := indices[chosen-1]
	return i, handles[i].Wait(ctx)
}
