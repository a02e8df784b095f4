package process

import (
	"context"
	"testing"
	"time"
)

// Limit is what only a hang exceeds, on a machine however loaded.
const Limit = 4 * time.Minute

// pollPeriod is the time between two looks at a condition.
const pollPeriod = 5 * time.Millisecond

// Holds waits for a condition and reports whether it came true within a time, and before
// ctx was cancelled.
func Holds(ctx context.Context, within time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// Until waits for a condition that only a hang keeps from coming true; what names it.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !Holds(t.Context(), Limit, condition) {
		t.Fatalf("waited %v in vain for %s", Limit, what)
	}
}

// Stays lets a time pass, and fails the test if a state that holds now does not hold all
// the while; what names it.
func Stays(t testing.TB, d time.Duration, what string, state func() bool) {
	t.Helper()
	if Holds(t.Context(), d, func() bool { return !state() }) {
		t.Fatalf("not for %v: %s", d, what)
	}
}

// Pause lets a time pass: that of a fault, or between two of them. It is not for waiting.
func Pause(t testing.TB, d time.Duration) {
	t.Helper()
	Holds(t.Context(), d, func() bool { return false })
}
