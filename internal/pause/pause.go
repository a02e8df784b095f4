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

// For waits for d. It returns the cause of ctx if ctx ends before, also for a d of 0 or less.
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
