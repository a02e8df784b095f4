package elastic

import (
	"strings"
	"sync"
	"time"
)

// selfReport is this member's report of itself in its heartbeats. The goroutines of the user and
// the driver change it; the driver's goroutine sends it.
type selfReport struct {
	mu         sync.Mutex
	mistakenAt time.Time // when this member reported a mistake; zero if it has not
	report     heartbeat // Entered, Step, Leaving, Ended, Stalled, Failed, Busy and Mistake; the heartbeatSender adds the other fields
}

// get returns the present report.
func (r *selfReport) get() heartbeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report
}

// update changes the report.
func (r *selfReport) update(change func(*heartbeat)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
}

// enter reports that this member enters the session of an epoch.
func (r *selfReport) enter(epoch uint64) { r.update(func(h *heartbeat) { h.Entered = epoch }) }

// commit reports the last step that this member has committed. A state that has no step yet counts
// as step 0.
func (r *selfReport) commit(step int64) {
	r.update(func(h *heartbeat) { h.Step = uint64(max(step, 0)) })
}

// committed returns the last step that this member has committed.
func (r *selfReport) committed() int64 { return int64(r.get().Step) }

// busy reports why this member makes no progress; "" means that it makes progress.
func (r *selfReport) busy(why string) { r.update(func(h *heartbeat) { h.Busy = why }) }

// notBusy withdraws the reason why, unless another reason has replaced it meanwhile.
func (r *selfReport) notBusy(why string) {
	r.update(func(h *heartbeat) {
		if h.Busy == why {
			h.Busy = ""
		}
	})
}

// stall reports that this member steps down because the others wait for it.
func (r *selfReport) stall() { r.update(func(h *heartbeat) { h.Stalled = true }) }

// fail reports that the loop of this member has failed, and that it leaves therefore.
func (r *selfReport) fail() { r.update(func(h *heartbeat) { h.Failed = true }) }

// mistake reports a mistake of the program.
func (r *selfReport) mistake(text string) {
	r.update(func(h *heartbeat) {
		h.Mistake, r.mistakenAt = strings.ToValidUTF8(text[:min(len(text), maxMistake)], ""), time.Now()
	})
}

// sinceMistake returns the time since this member reported a mistake.
func (r *selfReport) sinceMistake() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.mistakenAt)
}

// leave reports that this member has asked to leave. The argument ended means that it leaves
// because the job is at its end. The first call counts: if the member asked to leave before the
// end, the others log that it asked.
func (r *selfReport) leave(ended bool) {
	r.update(func(h *heartbeat) { h.Ended, h.Leaving = ended && !h.Leaving, true })
}
