package elastic

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// redials is a Network that counts the calls of Redial.
type redials struct {
	Network
	count int
}

func (r *redials) Redial(ID) { r.count++ }

// testWatcher returns a watcher of a member of a view of n members, and the events that it passes to
// the machine. The messages stay in the queues.
func testWatcher(t *testing.T, n, self int) (*watcher, *[]member.Event) {
	h := testHeartbeats(t, n, self)
	events := new([]member.Event)
	return &watcher{cfg: new(Config), network: new(redials), members: h.members, clock: h.clock, heartbeats: h, out: h.out,
		step: func(e member.Event) { *events = append(*events, e) }}, events
}

// A member that does not answer is probed and then suspected. The suspicion is withdrawn when a
// message of the member arrives.
func TestSilentMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, events := testWatcher(t, 3, 0)
		var told []ID
		w.cfg.OnSuspect = func(id ID) { told = append(told, id) }
		p := w.members.peerOf("001")
		for range (leastSilence + time.Second) / (slowTicks * tickPeriod) {
			<-time.After(slowTicks * tickPeriod)
			w.clock.advance(time.Now(), slowTicks)
			w.received("002")
			w.members.peerOf("002").helped = nil
			for h := range p.helped {
				w.receiveProbe(h, controlProbeReply, probeMessage{About: "001"})
			}
			w.judgeAll(time.Now())
		}
		want := []member.Event{member.Suspect{Peer: "001"}}
		if !slices.Equal(*events, want) || p.suspected != "silent" || w.network.(*redials).count != 1 || len(told) == 0 {
			t.Errorf("events %v, suspected %q, told of %v", *events, p.suspected, told)
		}
		w.received("001")
		if want = append(want, member.Trust{Peer: "001"}); !slices.Equal(*events, want) || p.suspected != "" {
			t.Errorf("events %v once it is heard, suspected %q", *events, p.suspected)
		}
	})
}

// In a group without a quorum, suspicions are withdrawn together.
func TestTrustTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, events := testWatcher(t, 3, 0)
		w.members.quorumLost = true
		for _, id := range []ID{"001", "002"} {
			w.notSent(failed{id, ErrGone})
		}
		*events = nil
		w.received("001")
		w.unsuspectAll(time.Now())
		if len(*events) > 0 {
			t.Errorf("%v while a member is missing", *events)
		}
		w.received("002")
		w.unsuspectAll(time.Now())
		if want := []member.Event{member.Trust{Peer: "001"}, member.Trust{Peer: "002"}}; !slices.Equal(*events, want) {
			t.Errorf("got %v, want %v", *events, want)
		}
	})
}

// The end of a connection is no reason for a suspicion, but a refused connection is. The watcher
// passes certain deaths to the machine, also of peers that are no members.
func TestEndOfConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, events := testWatcher(t, 3, 0)
		p := w.members.peerOf("001")
		w.disconnected("001")
		if got := w.heartbeats.sent(t, "001"); len(got) != 1 || !got[0].Reply || !p.down || len(*events) > 0 {
			t.Errorf("after the end: sent %+v, events %v", got, *events)
		}
		w.connected("001")
		w.notSent(failed{"001", context.DeadlineExceeded})
		if p.down || p.suspected != "" {
			t.Errorf("after a new connection: down %v, suspected %q", p.down, p.suspected)
		}
		w.notSent(failed{"001", ErrGone})
		w.dead("002")
		w.dead("else")
		want := []member.Event{member.Suspect{Peer: "001", Gone: true}, member.Dead{Peer: "002"}, member.Dead{Peer: "else"}}
		if !slices.Equal(*events, want) || p.suspected != "reset" {
			t.Errorf("got %v, want %v; suspected %q", *events, want, p.suspected)
		}
	})
}

// After a session broke because of one member, the watcher requests a new session of the same
// members when a message of that member has arrived.
func TestBlamedMemberLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, events := testWatcher(t, 3, 0)
		w.requireAnswer("001", w.members.peerOf("001"), 3)
		if got := w.heartbeats.sent(t, "001"); len(got) != 1 || !got[0].Reply || len(*events) > 0 {
			t.Errorf("sent %+v, events %v", got, *events)
		}
		w.received("001")
		w.received("001")
		if want := []member.Event{member.Renew{Epoch: 3}}; !slices.Equal(*events, want) {
			t.Errorf("got %v, want %v", *events, want)
		}
	})
}

// While the members enter the first session, silence counts only for a halted process, and for a
// process of another host that is silent for longer than mostSilence.
func TestNotJudgedWhileEntering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			state  ProcessState
			silent time.Duration
			want   bool
		}{
			{ProcessAsleep, time.Hour, false}, {ProcessBusy, time.Hour, false},
			{ProcessUnknown, mostSilence - time.Second, false}, {ProcessUnknown, mostSilence + time.Second, true},
			{ProcessHalted, time.Second, false}, {ProcessHalted, 2 * time.Second, true},
		} {
			w, _ := testWatcher(t, 3, 0)
			w.members.first = [32]byte{1}
			w.members.self.Launcher = "here"
			if c.state != ProcessUnknown {
				w.members.view.Members[1].Process, w.members.view.Members[1].Launcher = "1", "here"
				w.cfg.Inspect = func(Member) ProcessState { return c.state }
			}
			p := w.members.peerOf("001")
			now := time.Now().Add(c.silent)
			for range 10 * slowTicks {
				w.clock.ticks++
				now = now.Add(time.Millisecond)
				w.judge("001", p, now)
			}
			if got := p.suspected != "" || !p.asked.IsZero(); got != c.want {
				t.Errorf("state %d, silent for %v: judged is %v", c.state, c.silent, got)
			}
		}
	})
}

// A helper answers a probe request at once, which shows that it can be reached, and again when the
// probed member has answered. Only the second answer shows that the probed member can be reached.
func TestHelpers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := testWatcher(t, 7, 3)
		r := w.members
		if got := fmt.Sprint(r.helpersFor("005")); got != "[004 001]" {
			t.Errorf("helpers about 005: %s", got)
		}
		r.peerOf("004").asked = time.Now()
		if got := fmt.Sprint(r.helpersFor("005")); got != "[001 002]" {
			t.Errorf("helpers about 005 while 004 owes a word: %s", got)
		}
		p := r.peerOf("005")
		w.askFor("005", p)
		if r.wellHelped(p) {
			t.Error("nobody has answered yet")
		}
		w.receiveProbe("002", controlProbeReply, probeMessage{About: "005"})
		if !r.wellHelped(p) || !p.vouched.IsZero() {
			t.Errorf("helped is %v, vouched at %v", p.helped, p.vouched)
		}
		w.receiveProbe("006", controlProbeReply, probeMessage{About: "005", Heard: true})
		if !p.vouched.IsZero() {
			t.Error("a member that was not asked vouches")
		}
		w.receiveProbe("002", controlProbeReply, probeMessage{About: "005", Heard: true})
		if p.vouched.IsZero() {
			t.Error("the helper's word does not count")
		}
		w.receiveProbe("000", controlProbe, probeMessage{About: "006"})
		w.receiveProbe("else", controlProbe, probeMessage{About: "006"})
		w.received("006")
		if got := fmt.Sprint(r.peerOf("006").askers); got != "[000]" {
			t.Errorf("%s wait for the answer after another message", got)
		}
		w.vouchFor("006", r.peerOf("006"))
		var got []string
		for _, b := range w.out.queue["000"] {
			got = append(got, string(b))
		}
		var want []string
		for _, q := range []probeMessage{{About: "006"}, {About: "006", Heard: true}} {
			want = append(want, string(q.append(controlProbeReply, nil)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the asker gets %q, want %q", got, want)
		}
		if got := r.peerOf("006").askers; len(got) > 0 || len(w.out.queue["else"]) > 0 {
			t.Errorf("%v still wait for the word", got)
		}
	})
}

// A suspicion is withdrawn only by messages which report that the sender hears this member.
func TestDeafStaysSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := testWatcher(t, 3, 0)
		p := w.members.peerOf("001")
		p.suspected = "unreachable"
		for _, deaf := range []bool{true, false} {
			p.heartbeat.Deaf = deaf
			w.received("001")
			if got := p.suspected != ""; got != deaf {
				t.Errorf("deaf %v: suspected is %v", deaf, got)
			}
		}
	})
}

// Helpers on other hosts come first, because a member of this host uses the same network as this
// member.
func TestHelpersOnOtherHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRoster(12, 5)
		v := r.view
		v.ring, v.Members = nil, slices.Clone(v.Members)
		for i := range v.Members {
			v.Members[i].Host = fmt.Sprint(i / 4)
			if i/4 == 1 && i != 5 {
				r.peerOf(v.Members[i].ID).near = true
			}
		}
		r.replace(v)
		if got := fmt.Sprint(r.watched(), r.helpersFor("009")); got != "[006 009 001 004] [001 006]" {
			t.Errorf("watched, and helpers about 009: %s", got)
		}
	})
}

// The pauses of a member while it was not watched do not lengthen its limit when it is watched.
func TestPausesBeforeTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRoster(12, 0)
		for range 5 {
			<-time.After(5 * time.Second)
			for _, id := range []ID{"002", "003"} {
				r.peerOf(id).word(time.Now(), false)
			}
		}
		r.replace(View{Epoch: 4, Members: without(r.view.Members, "001")}) // 003 is the second neighbour now
		for id, want := range map[ID]time.Duration{"002": 4 * 5 * time.Second, "003": leastSilence} {
			if got := r.peerOf(id).limit(1); got != want {
				t.Errorf("%s may be silent for %v, want %v", id, got, want)
			}
		}
	})
}
