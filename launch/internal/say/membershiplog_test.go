package say

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
)

// script feeds events into a MembershipLog, one second apart by default, and collects its lines.
type script struct {
	c     *MembershipLog
	now   time.Time
	lines []string
}

func newScript() *script {
	s := &script{now: time.Unix(1000, 0)}
	s.c = NewMembershipLog(1, func(id string) string { return "<" + id + ">" }, func(id string) bool { return id >= "m" })
	return s
}

// tell reports the same event from n peers.
func (s *script) tell(n int, epoch uint64, step int64, body event.Body) {
	for i := range n {
		s.lines = append(s.lines, s.c.Event(event.Event{Peer: fmt.Sprint(i), Epoch: epoch, Step: step, Body: body}, s.now)...)
	}
}

// view reports a view of members, with one letter for each.
func (s *script) view(epoch uint64, reason, members string) {
	s.tell(3, epoch, 0, event.View{Members: strings.Split(members, ""), Reason: reason})
}

// pass advances the time.
func (s *script) pass(d time.Duration) {
	s.now = s.now.Add(d)
	s.lines = append(s.lines, s.c.Due(s.now)...)
}

// expect compares the lines since the last expect.
func (s *script) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.lines, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(s.lines, "\n\t"), strings.Join(want, "\n\t"))
	}
	s.lines = nil
}

func TestMembershipLogStart(t *testing.T) {
	s := newScript()
	s.view(1, "start", "abc")
	s.view(2, "vote", "abc")
	s.tell(3, 2, 5, event.Step{})
	s.pass(time.Hour)
	s.expect(t)
}

func TestMembershipLogDeath(t *testing.T) {
	s := newScript()
	s.view(1, "start", "abcd")
	s.lines = append(s.lines, s.c.Ended("b", "was killed", s.now)...)
	s.tell(1, 2, 0, event.Lost{Who: "b", Cause: "reset", DetectMS: 9})
	s.view(2, "lost", "acd")
	s.tell(1, 2, 0, event.Lost{Who: "b", Cause: "reset", DetectMS: 3.14})
	s.pass(collectPeriod)
	s.tell(1, 1, 6, event.Step{Recomputed: 99}) // a step before the loss
	s.expect(t)
	s.tell(2, 2, 7, event.Step{Recomputed: 2})
	s.pass(collectPeriod)
	s.expect(t, "epoch 2: <b> is lost: it was killed, noticed after 3.1 ms, recomputed 4; 3 peers go on")
	s.tell(3, 2, 8, event.Step{})
	s.pass(time.Hour)
	s.expect(t)
}

// The line about a child waits for the report of how it ended, which may come late.
func TestMembershipLogDeathOfChild(t *testing.T) {
	s := newScript()
	s.view(1, "start", "amz")
	s.view(2, "lost", "a")
	s.tell(1, 2, 7, event.Step{})
	s.lines = append(s.lines, s.c.Ended("m", "was killed", s.now)...)
	s.pass(costPeriod / 2)
	s.expect(t) // z has not ended
	s.tell(1, 2, 0, event.Done{})
	s.lines = append(s.lines, s.c.Ended("z", "was killed", s.now)...)
	s.pass(collectPeriod)
	s.expect(t, "epoch 2: <m> is lost: it was killed, <z> is lost: it was killed, recomputed 0; 1 peer goes on")
}

func TestMembershipLogWithoutSteps(t *testing.T) {
	s := newScript()
	s.view(1, "start", "ab")
	s.tell(1, 1, 0, event.Lost{Who: "b", Cause: "silent"})
	s.view(2, "lost", "a")
	s.pass(costPeriod - time.Millisecond)
	s.expect(t)
	s.pass(time.Millisecond)
	s.expect(t, "epoch 2: <b> is lost: no message came from it; 1 peer goes on")
	// The end of the process is reported after the view.
	s.lines = s.c.Ended("b", "exited with status 1", s.now)
	s.expect(t, "<b> exited with status 1")
}

// A death is reported even if no view follows.
func TestMembershipLogDeathAlone(t *testing.T) {
	s := newScript()
	s.view(1, "start", "ab")
	s.c.Ended("b", "was killed", s.now)
	s.pass(costPeriod)
	s.expect(t, "<b> was killed; the others have not agreed on a new view yet")
	s.c.Ended("a", "was killed", s.now)
	s.lines = s.c.Finish()
	s.expect(t, "<a> was killed")
}

func TestMembershipLogComeAndGo(t *testing.T) {
	s := newScript()
	s.view(1, "start", "abc")
	s.tell(1, 1, 0, event.Join{Who: "m", Reason: "admitted"})
	s.view(2, "join", "abcm")
	s.tell(1, 2, 0, event.Join{Who: "m", Reason: "level", Bytes: 3 << 20, MS: 40})
	s.tell(1, 2, 0, event.Resync{Who: "m", Bytes: 7}) // has the same line
	s.tell(2, 2, 0, event.Leave{Who: "a", Reason: "asked"})
	s.view(3, "leave", "bcm")
	s.expect(t, "epoch 2: <m> has joined with 3.0 MiB of state in 40 ms; 4 peers go on")
	s.pass(costPeriod)
	s.expect(t, "epoch 3: <a> has left (asked); 3 peers go on")
	s.tell(1, 3, 9, event.Done{})
	s.view(4, "leave", "b") // the end of the program
	s.pass(costPeriod)
	s.expect(t)
}

// A group below its minimum does not go on, even if members join or are lost.
func TestMembershipLogTooFew(t *testing.T) {
	s := newScript()
	s.c.minPeers = 3
	s.view(1, "start", "a")
	for i, members := range []string{"ab", "abc", "bc", "c"} {
		s.view(uint64(i+2), "x", members)
		s.pass(costPeriod)
	}
	s.expect(t, "epoch 2: <b> has joined; 2 peers of the 3 needed wait for more",
		"epoch 3: <c> has joined; 3 peers go on",
		"epoch 4: <a> is lost: the cause is unknown; 2 peers of the 3 needed wait for more",
		"epoch 5: <b> is lost: the cause is unknown; 1 peer of the 3 needed waits for more")
}

// Leaves at the end of a program are not reported.
func TestMembershipLogAtTheEnd(t *testing.T) {
	s := newScript()
	s.view(1, "start", "abc")
	s.tell(1, 1, 0, event.Leave{Who: "a", Reason: "asked"})
	s.view(2, "leave", "bc")
	s.lines = s.c.Finish()
	s.expect(t)
	s.view(3, "lost", "b")
	s.lines = s.c.Finish()
	s.expect(t, "epoch 3: <c> is lost: the cause is unknown; 1 peer goes on")
}

// A member whose process has ended with status 0 is not reported as lost, whichever report arrives
// first.
func TestMembershipLogCompleted(t *testing.T) {
	s := newScript()
	s.view(1, "start", "amz")
	s.tell(2, 1, 0, event.Lost{Who: "m", Cause: "exit", DetectMS: 9})
	s.view(2, "lost", "az")
	s.tell(1, 2, 7, event.Step{Recomputed: 1})
	s.pass(costPeriod / 2)
	s.expect(t) // m has not ended
	s.c.Completed("m", s.now)
	s.pass(collectPeriod)
	s.expect(t, "epoch 2: <m> has ended with status 0; 2 peers go on")
	s.c.Completed("z", s.now)
	s.view(3, "lost", "a")
	s.lines = s.c.Finish()
	s.expect(t)
}

// A view without some members may arrive before the leave events of these members.
func TestMembershipLogLeaveComesLater(t *testing.T) {
	s := newScript()
	s.view(1, "start", "abm")
	s.tell(1, 1, 0, event.Lost{Who: "m", Cause: "reset"})
	s.view(2, "leave", "a")
	s.tell(1, 2, 0, event.Leave{Who: "b", Reason: "asked"})
	s.pass(costPeriod)
	s.expect(t, "epoch 2: <b> has left (asked), <m> has left; 1 peer goes on")
}

// A launcher whose peers join reports only its own peers at first.
func TestMembershipLogJoiningLauncher(t *testing.T) {
	s := newScript()
	s.view(5, "join", "abmn")
	s.pass(costPeriod)
	s.expect(t, "epoch 5: <m> has joined, <n> has joined; 4 peers go on")
}

// A group that never had enough peers has lost nobody.
func TestTooFewAtStart(t *testing.T) {
	s := newScript()
	s.view(1, "start", "a")
	s.tell(1, 1, 0, event.Quorum{State: "waiting", Present: 1, Needed: 2})
	s.expect(t, "the job waits for more peers (1 present, 2 needed): start them by elrun scale or elrun join")
	s.view(2, "join", "ab")
	s.tell(1, 2, 0, event.Quorum{State: "back", Present: 2, Needed: 2})
	s.pass(costPeriod)
	s.expect(t, "there are enough peers now (2 present, 2 needed); they go on", "epoch 2: <b> has joined; 2 peers go on")
	s.tell(1, 2, 0, event.Quorum{State: "waiting", Present: 1, Needed: 2})
	s.expect(t, "too few peers are left (1 present, 2 needed); they keep their state and wait for others")
}

func TestNotices(t *testing.T) {
	s := newScript()
	s.view(1, "start", "abc")
	s.tell(2, 1, 0, event.Fenced{Who: "b", Reason: "silent"})
	s.tell(2, 1, 0, event.Resync{Who: "a", Reason: "behind", Bytes: 2048, MS: 5})
	s.tell(2, 1, 0, event.Parked{Who: "m", Reason: "too slow"})
	s.expect(t)
	s.pass(collectPeriod)
	s.expect(t, "<a> has copied 2.0 KiB from the others in 5 ms (behind)", "<m> cannot take part yet and waits: too slow")
	s.pass(costPeriod)
	s.expect(t, "<b> was put out of the group while it still runs (silent); its state is void, and it joins again under a new ID")
	for _, who := range []string{"a", "b"} {
		s.tell(1, 1, 0, event.Resync{Who: who, Reason: "other", Bytes: 2048, MS: 5, Began: true})
	}
	s.expect(t, "<a> began with another state than the others and has copied theirs (2.0 KiB in 5 ms), and so has every peer that differed: give all the same seed")
	for present := range 3 {
		s.tell(2, 1, 0, event.Quorum{State: "lost", Present: present, Needed: 3})
		s.tell(2, 1, 0, event.Quorum{State: "waiting", Present: present, Needed: 3})
		s.pass(waitingPause / 2)
	}
	s.expect(t, "too few peers are left (0 present, 3 needed); they keep their state and wait for others",
		"too few peers are left (2 present, 3 needed); they keep their state and wait for others")
	s.tell(2, 1, 0, event.Quorum{State: "back", Present: 3, Needed: 3})
	s.tell(2, 1, 0, event.Quorum{State: "gave-up", Present: 1, Needed: 3})
	s.tell(2, 1, 0, event.Quorum{State: "from a newer version"})
	s.expect(t, "there are enough peers now (3 present, 3 needed); they go on",
		"too few peers came in time (1 present, 3 needed); the group gives up with status 75")
	s.tell(3, 1, 0, event.Quorum{State: "lost", Present: 1, Needed: 3})
	s.tell(3, 1, 0, event.Quorum{State: "back", Present: 1, Needed: 3})
	s.expect(t) // the wait was too short for a report
	for range 2 {
		s.tell(3, 1, 10, event.Unchanged{Steps: 10, Remedy: "write it"})
	}
	s.expect(t, "the state has not changed in 10 steps, which is right only if the program has converged; write it")
}

// For any order of the peers' reports, each join and each departure of a member is reported once,
// and memory is bounded.
func TestMembershipLogOnceEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScript()
		members, epoch, want := []string{"a"}, uint64(1), 0
		s.view(1, "start", "a")
		for range rapid.IntRange(0, 20).Draw(t, "changes") {
			epoch++
			if len(members) > 1 && rapid.Bool().Draw(t, "goes") {
				members = slices.Clone(members[1:])
			} else {
				members = append(slices.Clone(members), string(rune('A'+epoch)))
			}
			want++
			for range rapid.IntRange(1, 3).Draw(t, "reports") {
				s.tell(1, epoch, 0, event.View{Members: members, Reason: "x"})
				if rapid.Bool().Draw(t, "step") {
					s.tell(1, epoch, 1, event.Step{})
				}
				s.pass(time.Duration(rapid.IntRange(0, 1200).Draw(t, "ms")) * time.Millisecond)
			}
		}
		s.lines = append(s.lines, s.c.Finish()...)
		if got := strings.Count(strings.Join(s.lines, "\n"), "<"); got != want {
			t.Fatalf("%d changes told, want %d:\n%s", got, want, strings.Join(s.lines, "\n"))
		}
	})
}

// The highest-ranking cause of a loss is reported, with its limit, whatever the order of reports.
func TestCausesAreRanked(t *testing.T) {
	for _, reports := range [][]event.Lost{
		{{Cause: "silent", LimitMS: 1300}, {Cause: "reset"}, {Cause: ""}},
		{{Cause: "reset"}, {Cause: ""}, {Cause: "silent", LimitMS: 1300}},
		{{Cause: ""}, {Cause: "silent", LimitMS: 1300}, {Cause: "reset"}},
	} {
		s := newScript()
		s.view(1, "start", "abc")
		for _, l := range reports {
			l.Who, l.DetectMS = "c", 1400
			s.tell(1, 2, 0, l)
		}
		s.view(2, "lost", "ab")
		s.pass(time.Hour)
		s.expect(t, "epoch 2: <c> is lost: no message came from it for 1.3 s, noticed after 1400.0 ms; 2 peers go on")
	}
}

// The line about an unreachable member names one of the members that could not reach it, whatever
// their first reports were.
func TestUnreachableNamesTheOthers(t *testing.T) {
	for _, test := range []struct {
		reporters int
		want      string
	}{
		{1, "<0> could not reach it for 1.3 s"},
		{3, "<0> and 2 more could not reach it for 1.3 s"},
	} {
		s := newScript()
		s.view(1, "start", "abc")
		s.tell(3, 2, 0, event.Lost{Who: "c"})
		for range 2 { // the second report of a member does not count
			s.tell(test.reporters, 2, 0, event.Lost{Who: "c", Cause: "unreachable", LimitMS: 1300})
		}
		s.view(2, "lost", "ab")
		s.pass(time.Hour)
		s.expect(t, "epoch 2: <c> is lost: "+test.want+"; 2 peers go on")
	}
}

// A member that is asked to leave because it blocks the others is described as stalled, whether the
// leave event is its own or from another member.
func TestMembershipLogStalled(t *testing.T) {
	s := newScript()
	s.view(1, "start", "abc")
	s.tell(2, 2, 0, event.Leave{Who: "c", Reason: "stalled"})
	s.view(2, "leave", "ab")
	s.pass(time.Hour)
	s.expect(t, "epoch 2: <c> has left (stalled: the others waited for this peer, and its program did not call Busy); 2 peers go on")
}

// A peer that was put out and joins again is not reported as lost, because its launcher knows that
// it runs.
func TestMembershipLogFormerSelf(t *testing.T) {
	s := newScript()
	s.view(1, "start", "abm")
	s.tell(1, 1, 0, event.Fenced{Who: "m", Reason: "silent"})
	s.expect(t)
	s.tell(1, 3, 0, event.Join{Who: "n", Reason: "level"})
	s.view(3, "join", "abn") // the first view with its new ID; no peer here has seen a view without the peer
	s.pass(time.Hour)
	s.expect(t, "epoch 3: <m> was put out while it still runs (silent), and joins again under a new ID, <n> has joined; 3 peers go on")
}

// Any number of joins and departures makes one line of bounded length.
func TestMembershipLogOfMany(t *testing.T) {
	s := newScript()
	s.c.describe = func(id string) string { return "peer 99 (" + id + "zzzzzzz)" }
	all := "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	s.view(1, "start", all[:50])
	for _, id := range all[:20] {
		s.tell(1, 1, 0, event.Lost{Who: string(id), Cause: "silent", DetectMS: 1500.04})
	}
	for _, id := range all[20:30] {
		s.tell(1, 1, 0, event.Leave{Who: string(id)})
	}
	s.lines = append(s.lines, s.c.Ended("E", "was killed", s.now)...)
	s.c.Completed("F", s.now)
	s.view(2, "lost", all[32:])
	s.tell(3, 2, 8, event.Step{Recomputed: 4})
	s.pass(costPeriod)
	s.expect(t, "epoch 2: 21 of 50 peers are lost: 1 ended, 20 silent, 10 peers have left, 1 peer has ended with status 0, 12 peers have joined, noticed after 1500.0 ms, recomputed 12; 30 peers go on")
}

// Events of one kind about several members make one line, and the overload of their host comes
// first.
func TestEventGroups(t *testing.T) {
	s := newScript()
	s.c.Load = func() string { return "host overloaded (run queue 61 on 2 cores)" }
	all := strings.Split("mnopqrstuvwxyz", "")
	s.c.describe = func(id string) string { return "peer 10 (aaaaaaa" + id + ")" }
	s.view(1, "start", strings.Join(all, ""))
	for _, id := range all[:5] {
		s.tell(1, 1, 0, event.Fenced{Who: id, Reason: "silent"})
		s.tell(2, 1, 0, event.Lost{Who: id, Cause: "silent"})
	}
	for _, id := range all[5:9] {
		s.tell(2, 1, 0, event.Resync{Who: id, Reason: "behind", Bytes: 1})
		s.tell(2, 1, 0, event.Parked{Who: "new" + id, Reason: "too slow"})
	}
	s.view(2, "lost", strings.Join(all[5:], ""))
	s.tell(1, 2, 4, event.Step{})
	s.pass(costPeriod)
	s.expect(t, "epoch 2: 5 of 14 peers were put out: host overloaded (run queue 61 on 2 cores), 5 put out, recomputed 0; 9 peers go on",
		"4 peers have copied the state of the others (behind)", "4 peers cannot take part yet and wait: too slow")
	for _, id := range all[5:8] {
		s.tell(1, 2, 0, event.Fenced{Who: id, Reason: "silent"})
	}
	s.pass(costPeriod)
	s.expect(t, "3 peers were put out of the group while they still run (host overloaded (run queue 61 on 2 cores)); they join again under new IDs")
	s.c.Load, s.c.overloaded = nil, ""
	for _, id := range all[5:8] {
		s.lines = append(s.lines, s.c.Ended(id, "was killed", s.now)...)
	}
	s.pass(costPeriod)
	s.expect(t, "peer 10 (aaaaaaar) was killed, and 2 more have ended; the others have not agreed on a new view yet")
}

// On an overloaded host the line about a peer that was put out or ended begins with the overload.
func TestMembershipLogOverloaded(t *testing.T) {
	s := newScript()
	s.c.Load = func() string { return "host overloaded (run queue 61 on 2 cores)" }
	s.view(1, "start", "amnz")
	s.tell(1, 1, 0, event.Lost{Who: "n", Cause: "silent", LimitMS: 1300})
	s.lines = append(s.lines, s.c.Ended("z", "was killed", s.now)...)
	s.view(2, "lost", "am")
	s.pass(costPeriod)
	s.expect(t, "epoch 2: <n> was put out: host overloaded (run queue 61 on 2 cores), no message came from it for 1.3 s, <z> is lost: it was killed; 2 peers go on")
	s.view(3, "lost", "a")
	s.pass(costPeriod)
	s.expect(t, "epoch 3: <m> is lost: the cause is unknown; 1 peer goes on")
}

func TestOverload(t *testing.T) {
	for _, test := range []struct{ load, pressure, want string }{
		{"70.1 60.2 50.3 61/2000 12345\n", "", "host overloaded (run queue 61 on 2 cores)"},
		{"70.1 60.2 50.3 8/2000 12345\n", "some avg10=97.31 avg60=50.00 avg300=1.00 total=1\n", "host overloaded (threads waited for a core 97 % of 10 s)"},
		{"0.1 0.2 0.3 1/200 1\n", "some avg10=12.00 avg60=50.00 avg300=1.00 total=1\n", ""},
		{"", "", ""},
		{"a b c d/e", "some avg10=x", ""},
	} {
		if got := overloadOf(test.load, test.pressure, 2); got != test.want {
			t.Errorf("%q, %q: %q, want %q", test.load, test.pressure, got, test.want)
		}
	}
}

// No line exceeds the limit, whatever the events and the number of members.
func TestLinesAreShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScript()
		s.c.minPeers = rapid.SampledFrom([]int{1, 64}).Draw(t, "fewest")
		s.c.Load = func() string { return "host overloaded (threads waited for a core 100 % of 10 s)" }
		s.c.describe = func(id string) string { return "peer 4095 (" + id + ")" }
		ids := make([]string, 64)
		for i := range ids {
			ids[i] = fmt.Sprintf("z%07d", i)
		}
		cut := rapid.IntRange(1, 63).Draw(t, "cut")
		s.tell(1, 123456, 0, event.View{Members: ids[:cut], Reason: "start"})
		for i, id := range ids {
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				s.tell(1, 1, 0, event.Fenced{Who: id, Reason: "silent"})
			case 1:
				s.tell(1, 1, 0, event.Lost{Who: id, Cause: rapid.SampledFrom([]string{"silent", "reset", "unreachable", ""}).Draw(t, "cause"), DetectMS: 12345.6})
			case 2:
				s.tell(1, 1, 0, event.Leave{Who: id, Reason: "stalled"})
			case 3:
				s.lines = append(s.lines, s.c.Ended(id, "was killed by signal 9 (killed), pid 4194304", s.now)...)
			case 4:
				s.tell(1, 1, 0, event.Join{Who: id, Bytes: 1 << 40, MS: 1e6})
			case 5:
				s.tell(1, 1, 0, event.Parked{Who: id, Reason: "the step would take longer with it"})
			}
			if i%20 == 19 {
				s.tell(1, uint64(123457+i), 0, event.View{Members: ids[rapid.IntRange(0, cut-1).Draw(t, "first"):cut]})
				s.tell(1, uint64(123457+i), 9, event.Step{Recomputed: 123456})
			}
		}
		s.tell(1, 133457, 0, event.View{Members: ids[cut:]})
		s.pass(time.Hour)
		s.lines = append(s.lines, s.c.Finish()...)
		for _, line := range s.lines {
			if len(linePrefix+line) > maxLineLength {
				t.Fatalf("%d bytes: %s", len(line), line)
			}
		}
	})
}
