package transfer

import (
	"context"
	"sync"
	"time"
)

// cond is a condition variable like sync.Cond, but its waits have a time limit and a context.
type cond struct {
	mu      *sync.Mutex   // guards the data for which goroutines wait, and changed
	changed chan struct{} // closed at the next change; nil if no goroutine waits
}

// wakeLocked wakes all waiting goroutines, which then call done again.
func (c *cond) wakeLocked() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// changesLocked returns a channel that is closed at the next change.
func (c *cond) changesLocked() <-chan struct{} {
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// await waits until done returns true or an error, for at most limit. It calls done with the mutex
// locked, at least once, and once more at the limit. It returns an error only from done, or if ctx
// ends.
func (c *cond) await(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for late := false; ; {
		c.mu.Lock()
		finished, err := done()
		// The channel is taken while the lock is still held, so no change between done and the wait
		// is missed.
		changes := c.changesLocked()
		c.mu.Unlock()
		// At the limit done is called once more: a change and the timer may have come together.
		if finished || late || err != nil {
			return err
		}
		select {
		case <-changes:
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
