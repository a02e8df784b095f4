package elastic

import (
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// heartbeatTicks is the period of heartbeats to the members that watch this one, in ticks, in a
	// group in which all watch each other.
	heartbeatTicks = 5
	// crowdedTicks is the period in a larger group, in ticks.
	crowdedTicks = 10
	// slowTicks is the period of heartbeats to suspects and, in a larger group, to members of this
	// host, in ticks.
	slowTicks = 25
	// Until the first view is agreed, the lower rank of a pair waits for firstTicks ticks before it
	// connects to the higher rank.
	firstTicks = 100
	// greetedAll is the number of members up to which each member greets all others.
	greetedAll = 64
)

// heartbeatSender sends the heartbeats of this member. A heartbeat has the member's report of
// itself, and whether the member hears (receives messages of) the receiver. The driver's goroutine
// owns the sender, which only reads the other parts of the driver.
type heartbeatSender struct {
	members  *roster
	clock    *tickClock
	report   *selfReport
	launcher *singleLauncher
	out      *sendQueues
}

// sendAll sends a heartbeat, with this member's new state, to the members that watch this one.
func (h *heartbeatSender) sendAll() { h.sendIf(func(*peer) bool { return true }) }

// sendDue sends the periodic heartbeats.
func (h *heartbeatSender) sendDue() {
	if h.members.entering() && h.clock.ticks%slowTicks == 0 {
		h.greetAll()
	}
	h.sendIf(func(p *peer) bool { return h.clock.ticks%h.period(p) == 0 })
}

// period returns the period of heartbeats to a member, in ticks. Suspects receive them rarely. In a
// large group, members of this host also receive heartbeats rarely. The end of a process on this
// host is detected without heartbeats, and a hundred processes would wake each other thousands of
// times a second.
func (h *heartbeatSender) period(p *peer) int {
	switch {
	case p.suspected != "" || h.members.crowded() && p.near:
		return slowTicks
	case h.members.crowded():
		return crowdedTicks
	}
	return heartbeatTicks
}

// next returns the number of ticks until a periodic heartbeat is due or members have to be judged,
// for a member that is not entering its first session.
func (h *heartbeatSender) next() int {
	often := func(id ID) bool {
		p := h.members.peerOf(id)
		return !p.near || p.suspected != ""
	}
	period := heartbeatTicks
	if h.members.crowded() && !slices.ContainsFunc(h.members.watched(), often) {
		period = slowTicks
	}
	return period - h.clock.ticks%period
}

// sendIf sends a heartbeat to the watching members for which the function wanted returns true.
// Before the first view is agreed, it skips members of other hosts that have sent no message yet:
// greetAll sends to them.
func (h *heartbeatSender) sendIf(wanted func(*peer) bool) {
	for _, id := range h.members.watched() {
		if p := h.members.peerOf(id); wanted(p) && (p.spoke || p.near || !h.members.entering()) {
			h.send(id, false)
		}
	}
}

// greetAll announces this member's first view to members that have sent no message yet, and
// requests a heartbeat with their first view. It skips members of this host, as one launcher has
// given them the same view. In each pair the higher rank connects first, as it does for data. The
// lower rank connects after firstTicks, because it may be the only one that can connect.
func (h *heartbeatSender) greetAll() {
	v := h.members.view
	n, self := len(v.Members), v.Rank(h.members.self.ID)
	for _, rank := range ranksAround(n, self, greeted(n)) {
		m := v.Members[rank]
		p := h.members.peers[m.ID]
		if h.members.near(m) || p != nil && p.spoke || rank > self && h.clock.ticks <= firstTicks {
			continue
		}
		h.send(m.ID, true)
	}
}

// greeted returns the distances, on the ring of ranks, of the members that a member of n greets. In
// a large group they are 1, 2, 4, 8 and so on. The pairs form a connected graph of the group, so if
// first views differ at least one pair detects the difference.
func greeted(n int) (all []int) {
	if n <= greetedAll {
		return distances(n / 2)
	}
	for d := 1; d <= n/2; d *= 2 {
		all = append(all, d)
	}
	return all
}

// send sends a heartbeat; reply requests one in return.
func (h *heartbeatSender) send(id ID, reply bool) { h.sendState(id, reply, false) }

// answer sends a heartbeat that the member has requested.
func (h *heartbeatSender) answer(id ID) { h.sendState(id, false, true) }

// sendState sends a heartbeat with the given flags.
func (h *heartbeatSender) sendState(id ID, reply, answer bool) {
	t := h.report.get()
	t.Reply, t.Answer, t.First, t.Sole = reply, answer, h.members.first, h.launcher.on
	if p := h.members.peerOf(id); p != nil {
		t.Deaf = !h.members.entering() && p.overdue(h.clock.ticked, h.clock.health.factor(h.clock.ticked))
	}
	h.out.send(id, t.append(nil))
}

// distances returns 1, 2, ..., most.
func distances(most int) []int {
	all := make([]int, most)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

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

// stall reports that this member steps down, because the others wait for it or, if why is not empty, for
// this reason.
func (s *selfReport) stall(why string) {
	s.update(func(h *heartbeat) {
		h.Stalled = true
		if why != "" {
			h.Busy = why
		}
	})
}

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
