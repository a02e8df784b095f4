// Package pause waits for a time that a context may cut short, once or between attempts.
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

// Backoff makes the pauses between attempts: the first takes First, and each later one twice as long
// as the one before, up to Last.
//
//	for again := (pause.Backoff{First: time.Second, Last: time.Minute}); ; {
//		if try() == nil || again.Wait(ctx) != nil {
//			return
//		}
//	}
type Backoff struct {
	First, Last time.Duration
	last        time.Duration // the last pause; 0 before the first
}

// Next returns how long the next pause takes.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(b.First, 2*b.last), b.Last)
	return b.last
}

// Wait makes the next pause, as For does.
func (b *Backoff) Wait(ctx context.Context) error { return For(ctx, b.Next()) }

// Reset makes the next pause the first again.
func (b *Backoff) Reset() { b.last = 0 }
