package transfer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		c := cond{mu: &mu}
		value, calls := 0, 0
		begun := time.Now()
		wait := func(ctx context.Context) error {
			calls = 0
			return c.await(ctx, time.Minute, func() (bool, error) {
				if calls++; value < 0 {
					return false, errClosed
				}
				return value > 2, nil
			})
		}
		set := func(v int) {
			mu.Lock()
			defer mu.Unlock()
			value = v
			c.wakeLocked()
		}
		set(1) // no goroutine waits
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := wait(ended); !errors.Is(err, context.Canceled) || calls != 1 {
			t.Errorf("the context has ended: %v after %d calls", err, calls)
		}
		if err := wait(t.Context()); err != nil || calls != 2 || time.Since(begun) != time.Minute {
			t.Errorf("at the limit: %v after %d calls and %v", err, calls, time.Since(begun))
		}
		for _, end := range []int{3, -1} {
			value = 1
			result := make(chan error)
			go func() { result <- wait(t.Context()) }()
			for _, v := range []int{2, end} {
				synctest.Wait()
				set(v)
			}
			if err := <-result; calls != 3 || end < 0 != errors.Is(err, errClosed) {
				t.Errorf("value %d: %v after %d calls", end, err, calls)
			}
		}
	})
}
