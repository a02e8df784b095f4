package mesh

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// After end no goroutine begins, and pauses end with ErrClosed. Only the first call of end returns true.
func TestLifetimeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLifetime()
		if !l.begin() {
			t.Fatal("it has not begun")
		}
		go func() {
			defer l.working.Done()
			<-l.ctx.Done()
		}()
		paused := make(chan error)
		go func() { paused <- l.pause(t.Context(), time.Hour, errors.New("failed")) }()
		synctest.Wait()
		if !l.end() || l.end() {
			t.Error("only the first call of end should return true")
		}
		if err := <-paused; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("a pause ended with %v", err)
		}
		l.working.Wait()
		if l.begin() {
			t.Error("a goroutine began after the end")
		}
		l.run(func() { t.Error("a function was called after the end") })
		synctest.Wait()
	})
}

// retry pauses longer after each failure, up to lastPause. It ends at once with an error that is final, and with
// the last error when ctx ends.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begun, calls := newLifetime(), time.Now(), 0
		refused := errors.New("refused")
		err := l.retry(t.Context(), func() error {
			if calls++; calls < 4 {
				return refused
			}
			return final{refused}
		})
		if !errors.Is(err, refused) || calls != 4 || time.Since(begun) != 7*firstPause {
			t.Errorf("%d calls in %v, %v", calls, time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls = 0
		err = l.retry(ctx, func() error { calls++; return refused })
		if !errors.Is(err, refused) || !errors.Is(err, context.DeadlineExceeded) || calls < 60 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}
