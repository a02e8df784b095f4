package collective

import (
	"context"
	"fmt"
	"reflect"
)

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
