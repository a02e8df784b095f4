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
func (s *selfReport) get() heartbeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

// update changes the report.
func (s *selfReport) update(change func(*heartbeat)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.report)
}

// enter reports that this member enters the session of an epoch.
func (s *selfReport) enter(epoch uint64) { s.update(func(h *heartbeat) { h.Entered = epoch }) }

// commit reports the last step that this member has committed. A state that has no step yet counts
// as step 0.
func (s *selfReport) commit(step int64) {
	s.update(func(h *heartbeat) { h.Step = uint64(max(step, 0)) })
}

// committed returns the last step that this member has committed.
func (s *selfReport) committed() int64 { return int64(s.get().Step) }

// busy reports why this member makes no progress; "" means that it makes progress.
func (s *selfReport) busy(why string) { s.update(func(h *heartbeat) { h.Busy = why }) }

// notBusy withdraws the reason why, unless another reason has replaced it meanwhile.
func (s *selfReport) notBusy(why string) {
	s.update(func(h *heartbeat) {
		if h.Busy == why {
			h.Busy = ""
		}
	})
}

// stall reports that this member steps down because the others wait for it.
func (s *selfReport) stall() { s.update(func(h *heartbeat) { h.Stalled = true }) }

// fail reports that the loop of this member has failed, and that it leaves therefore.
func (s *selfReport) fail() { s.update(func(h *heartbeat) { h.Failed = true }) }

// mistake reports a mistake of the program.
func (s *selfReport) mistake(text string) {
	s.update(func(h *heartbeat) {
		h.Mistake, s.mistakenAt = strings.ToValidUTF8(text[:min(len(text), maxMistake)], ""), time.Now()
	})
}

// sinceMistake returns the time since this member reported a mistake.
func (s *selfReport) sinceMistake() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.mistakenAt)
}

// leave reports that this member has asked to leave. The argument ended means that it leaves
// because the job is at its end. The first call counts: if the member asked to leave before the
// end, the others log that it asked.
func (s *selfReport) leave(ended bool) {
	s.update(func(h *heartbeat) { h.Ended, h.Leaving = ended && !h.Leaving, true })
}
