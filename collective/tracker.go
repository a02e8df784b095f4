package collective

import (
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
)

// tracker holds the calls in progress. A tracked call is in calls, where the watchdog sees it, and
// Close waits for it. Tracking takes longer than a short call in shared memory, so one blocking
// call in shared memory at a time may begin untracked. If that call is still in progress at the
// next check of the watchdog, the watchdog begins to track it. All fields but started and working
// are guarded by endpoint.mu.
type tracker struct {
	started time.Time      // origin of all times that are durations
	working sync.WaitGroup // the watchdog and all tracked calls

	calls         map[*operation]struct{} // tracked calls in progress
	untracked     *operation              // untracked call in progress; nil for none
	spare         *operation              // an untracked call that has ended, for reuse
	untrackedSeen bool                    // an untracked call has begun since the last check of the watchdog
	limit         stall.Limit             // adaptive timeout of calls
	blocked       int                     // number of blocking calls in progress, without those that are parts of other calls
	goroutines    bool                    // a call began during one of them, so the program calls from several goroutines
}

// register returns a new operation, tracked unless it may stay untracked. The caller holds
// endpoint.mu.
func (t *tracker) register(untracked bool) *operation {
	if !untracked {
		o := new(operation)
		t.track(o)
		return o
	}
	o := t.spare
	if o == nil {
		o = new(operation)
	}
	o.untracked = true
	t.spare, t.untracked, t.untrackedSeen = nil, o, true
	return o
}

// promote begins to track the untracked call in progress, if there is one. The caller holds
// endpoint.mu.
func (t *tracker) promote() {
	if t.untracked != nil {
		t.track(t.untracked)
		t.untracked = nil
	}
}

// track begins to track a call: it records its times, and Close waits for it. The caller
// holds endpoint.mu.
func (t *tracker) track(o *operation) {
	t.working.Add(1)
	o.begin = time.Since(t.started)
	o.lastMessage.Store(int64(o.begin))
	t.limit.Begin(o.begin)
	t.calls[o] = struct{}{}
	o.tracked.Store(true)
}

// unregister removes a call that has ended at now, and reports whether it was tracked. If it was, the
// caller must call working.Done. The caller holds endpoint.mu.
func (t *tracker) unregister(o *operation, now time.Duration) bool {
	if t.untracked == o {
		*o = operation{}
		t.untracked, t.spare = nil, o
		return false
	}
	t.limit.End(now)
	delete(t.calls, o)
	return true
}

// all returns the calls in progress, the oldest first. It tracks the untracked call if there is
// one. The caller holds endpoint.mu.
func (t *tracker) all() callList {
	t.promote()
	ops := make(callList, 0, len(t.calls))
	for o := range t.calls {
		ops = append(ops, o)
	}
	slices.SortFunc(ops, func(a, b *operation) int { return int(a.begin - b.begin) })
	return ops
}
