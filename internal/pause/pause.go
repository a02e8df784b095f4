// Package pause waits for a time that a context may cut short.
//
//	for wait := time.Second; ; wait *= 2 {
//		if try() == nil || pause.For(ctx, wait) != nil {
//			return
//		}
//	}
package pause

import (
	"context"
	"time"
)

// For waits for d; it does not wait if d is 0 or less. If ctx has ended, or ends during the wait,
// For returns the cause at once.
func For(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
