package elastic

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// hostWatcher returns member "002" of 12 members on three hosts, and its events.
func hostWatcher(t *testing.T) (*watcher, *[]member.Event) {
	w, events := testWatcher(t, 12, 2)
	v := w.members.view
	v.ring, v.Members = nil, slices.Clone(v.Members)
	for i := range v.Members {
		v.Members[i].Host = fmt.Sprint(i / 4)
	}
	w.members.self = v.Members[2]
	w.members.replace(v)
	return w, events
}

// The members of a host are suspected together if none of them answers. If one answers, only the
// silent member is suspected. A message that is not an answer does not withdraw the suspicion of a
// host.
func TestSilentHostIsSuspected(t *testing.T) {
	for answers, want := range map[ID][]member.Event{
		"":    {member.Suspect{Peer: "006"}, member.Suspect{Peer: "004"}, member.Suspect{Peer: "005"}, member.Suspect{Peer: "007"}},
		"007": {member.Suspect{Peer: "006"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, events := hostWatcher(t)
			for range (leastSilence + time.Second) / (heartbeatTicks * tickPeriod) {
				<-time.After(heartbeatTicks * tickPeriod)
				w.clock.advance(time.Now(), heartbeatTicks)
				for id := range w.members.peers {
					if w.members.view.Rank(id)/4 != 1 {
						w.received(id)
					}
				}
				for h := range w.members.peers["006"].helped {
					w.receiveProbe(h, controlProbeReply, probeMessage{About: "006"})
				}
				if p := w.members.peers[answers]; p != nil && len(w.heartbeats.sent(t, answers)) > 0 {
					w.answered(answers, p)
				}
				w.judgeAll(time.Now())
			}
			if !slices.Equal(*events, want) {
				t.Errorf("%q answers: %v, want %v", answers, *events, want)
			}
			if answers != "" {
				return
			}
			p := w.members.peers["005"]
			w.received("005")
			if p.suspected == "" {
				t.Error("a message that is no answer withdraws the suspicion")
			}
			w.answered("005", p)
			w.received("005")
			if p.suspected != "" {
				t.Error("an answer does not withdraw the suspicion")
			}
		})
	}
}

// Members whose host is unknown, and members of this member's host, are judged one by one.
func TestHostMates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRoster(6, 0)
		if got := r.hostMates("003"); got != nil {
			t.Errorf("on an unknown host: %v", got)
		}
		for i, host := range []string{"a", "b", "a", "b", "a", "b"} {
			r.view.Members[i].Host = host
		}
		r.self = r.view.Members[0]
		if got := r.hostMates("004"); got != nil {
			t.Errorf("on this host: %v", got)
		}
		if got := fmt.Sprint(r.hostMates("003")); got != "[001 005]" {
			t.Errorf("on another host: %v", got)
		}
	})
}

// A process that runs late does not suspect a whole host: the answers may be waiting at the process.
func TestLateMemberSuspectsNoHost(t *testing.T) {
	for late, want := range map[bool]int{true: 0, false: 3} {
		synctest.Test(t, func(t *testing.T) {
			w, events := hostWatcher(t)
			if late {
				w.clock.health.worse(time.Now())
			}
			w.suspectHost("006", w.members.peers["006"], time.Now())
			if len(*events) != want {
				t.Errorf("late %v: %v", late, *events)
			}
		})
	}
}
