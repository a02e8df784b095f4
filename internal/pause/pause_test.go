package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// For waits for the given time. If the context ends first, For returns the cause at once.
func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := For(t.Context(), time.Second); err != nil || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if err := For(t.Context(), -time.Second); err != nil {
			t.Errorf("for less than nothing: %v", err)
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		begun = time.Now()
		if err := For(ctx, time.Hour); !errors.Is(err, cause) || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if err := For(ctx, 0); !errors.Is(err, cause) {
			t.Errorf("after the end of the context: %v", err)
		}
	})
}

// The pauses of a Backoff double from the first to the last.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{First: time.Second, Last: 5 * time.Second}
		for range 2 {
			for i, want := range []time.Duration{1, 2, 4, 5, 5} {
				begun := time.Now()
				if err := b.Wait(t.Context()); err != nil || time.Since(begun) != want*time.Second {
					t.Errorf("pause %d took %v, want %v s; %v", i, time.Since(begun), int(want), err)
				}
			}
			b.Reset()
		}
	})
}
