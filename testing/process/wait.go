package process

import (
	"context"
	"testing"
	"time"
)

// Limit is so long that only a hang exceeds it, even on a loaded machine.
const Limit = 4 * time.Minute

// Conditions are evaluated at intervals of pollPeriod. If an evaluation takes long, for example
// because it reads all of /proc, the interval is idleShare times the time of the evaluation, up to
// longestPoll. So most of the processor time remains for the processes under test.
const (
	pollPeriod  = 5 * time.Millisecond
	longestPoll = 100 * time.Millisecond
	idleShare   = 5
)

// Holds waits until a condition is true. It returns false if the time within has passed or ctx is
// cancelled before.
func Holds(ctx context.Context, within time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		begun := time.Now()
		if condition() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(min(max(pollPeriod, idleShare*time.Since(begun)), longestPoll)):
		}
	}
}

// Until waits until a condition is true, and fails the test after Limit. what describes the condition in messages.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !Holds(t.Context(), Limit, condition) {
		t.Fatalf("waited %v in vain for %s", Limit, what)
	}
}

// Stays checks that a state holds now and during the time d. what describes the state in messages.
func Stays(t testing.TB, d time.Duration, what string, state func() bool) {
	t.Helper()
	if Holds(t.Context(), d, func() bool { return !state() }) {
		t.Fatalf("not for %v: %s", d, what)
	}
}

// Pause waits for the length of a fault, or between two faults. To wait for a condition, use Until.
func Pause(t testing.TB, d time.Duration) {
	t.Helper()
	Holds(t.Context(), d, func() bool { return false })
}
