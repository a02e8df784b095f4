package elastic

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// testHeartbeats returns the heartbeatSender of a member of a view of n members. Messages stay in
// the send queues.
func testHeartbeats(t *testing.T, n, self int) *heartbeatSender {
	h := &heartbeatSender{testRoster(n, self), &tickClock{ticked: time.Now()}, new(selfReport), new(singleLauncher), newSendQueues(nil)}
	h.out.cancel()
	t.Cleanup(h.out.stop)
	return h
}

// sent returns the heartbeats to a member that wait in its queue.
func (h *heartbeatSender) sent(t *testing.T, to ID) (all []heartbeat) {
	for _, b := range h.out.queue[to] {
		beat, err := decodeHeartbeat(b[1:])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, beat)
	}
	return all
}

// count returns the number of heartbeats to all members.
func (h *heartbeatSender) count() (n int) {
	for _, q := range h.out.queue {
		n += len(q)
	}
	return n
}

// In a large group periodic heartbeats are less frequent, and rare between members of one host. A
// change of the report is sent at once.
func TestHeartbeatsWithinAHost(t *testing.T) {
	for _, c := range []struct {
		members int
		near    bool
		want    int // heartbeats in a second
	}{{5, true, 4 * 20}, {12, true, 4 * 4}, {12, false, 4 * 10}} {
		synctest.Test(t, func(t *testing.T) {
			h := testHeartbeats(t, c.members, 0)
			for _, p := range h.members.peers {
				p.near = c.near
			}
			for range time.Second / tickPeriod {
				h.clock.advance(h.clock.ticked.Add(tickPeriod), 1)
				if h.clock.ticks%heartbeatTicks == 0 {
					h.sendDue()
				}
			}
			if got := h.count(); got != c.want {
				t.Errorf("%d members, of one host %v: %d heartbeats in a second, want %d", c.members, c.near, got, c.want)
			}
			before := h.count()
			h.sendAll()
			if got := h.count() - before; got != 4 {
				t.Errorf("%d members, of one host %v: %d heartbeats when something is new, want 4", c.members, c.near, got)
			}
		})
	}
}

// A heartbeat has the report of this member. After the first view is agreed it also has Deaf set if
// the receiver has been silent for long.
func TestHeartbeatSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHeartbeats(t, 3, 0)
		h.report.busy("evaluating")
		h.launcher.on = true
		h.send("001", true)
		h.clock.ticked = h.clock.ticked.Add(leastSilence)
		h.members.peers["002"].last = h.clock.ticked
		h.send("001", false)
		h.answer("002")
		h.members.first[0] = 1
		h.send("001", false)
		want := map[ID][]heartbeat{
			"001": {{Reply: true, Sole: true, Busy: "evaluating"}, {Deaf: true, Sole: true, Busy: "evaluating"}, {Sole: true, First: [32]byte{1}, Busy: "evaluating"}},
			"002": {{Answer: true, Sole: true, Busy: "evaluating"}},
		}
		for to, want := range want {
			if got := h.sent(t, to); !slices.Equal(got, want) {
				t.Errorf("member %s gets %+v, want %+v", to, got, want)
			}
		}
	})
}

// In a large group each member greets only a few others.
func TestGreetsFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n, most := range map[int]int{10: 9, greetedAll: greetedAll - 1, 1000: 2*10 + 2} {
			h := testHeartbeats(t, n, 0)
			h.members.first[0], h.clock.ticks = 1, firstTicks+1
			clear(h.members.peers)
			h.greetAll()
			if got := h.count(); got > most || got < min(n-1, most)/2 {
				t.Errorf("a member of %d greets %d, at most %d", n, got, most)
			}
		}
	})
}
