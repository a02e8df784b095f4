package member

import (
	"fmt"
	"slices"
	"testing"
)

// sentBy runs step in each of the next ticks, and returns "tick receiver" of each message.
func sentBy(base *membership, ticks uint64, step func()) (all []string) {
	for end := base.tick + ticks; base.tick < end; base.tick++ {
		step()
		for _, msg := range base.out.Messages {
			all = append(all, fmt.Sprint(base.tick, " ", msg.To))
		}
		base.out = Ready{}
	}
	return all
}

// A report with content is repeated at growing intervals, twice to the first proposer in rank
// order, and from the third time on to all proposers in turn. An empty report after it is sent
// once.
func TestReportIsRepeated(t *testing.T) {
	base := aloneIn(t, "c", "a", "b", "c")
	l := &localState{membership: base}
	r := &reporter{membership: base, local: l, quorum: &quorumMonitor{membership: base, local: l}}
	if got := sentBy(base, 100, r.report); got != nil {
		t.Errorf("without content: %v", got)
	}
	base.tick = 0
	l.leaving = true
	l.version++
	want := []string{"0 a", "8 a", "24 b", "56 a", "120 b", "184 a"}
	if got := sentBy(base, 200, r.report); !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
	l.leaving = false
	l.version++
	if got := sentBy(base, 200, r.report); !slices.Equal(got, []string{"200 a"}) {
		t.Errorf("without content again: %v", got)
	}
}

// The first proposer in rank order sends no report, and a suspected proposer gets none.
func TestReportGoesToTheFirstReachable(t *testing.T) {
	for self, want := range map[ID][]string{"a": nil, "b": nil, "c": {"0 b"}} {
		base := aloneIn(t, self, "a", "b", "c")
		l := &localState{membership: base, version: 1}
		if self != "a" {
			l.suspect(Suspect{Peer: "a"})
		}
		r := &reporter{membership: base, local: l, quorum: &quorumMonitor{membership: base, local: l}}
		if got := sentBy(base, 1, r.report); !slices.Equal(got, want) {
			t.Errorf("%s sends %v, want %v", self, got, want)
		}
	}
}

// A notice is sent only when the quorum is lost, when the number of reachable voters changes while
// it is lost, and when the quorum is back.
func TestQuorumIsWatched(t *testing.T) {
	base := aloneIn(t, "a", "a", "b", "c", "d", "e")
	l := &localState{membership: base}
	q := &quorumMonitor{membership: base, local: l}
	for i, c := range []struct {
		suspects []ID
		want     string
	}{
		{nil, ""},
		{[]ID{"b", "c"}, ""},
		{[]ID{"b", "c", "d"}, "quorum lost: 2 of 3"},
		{[]ID{"b", "c", "e"}, ""},
		{[]ID{"b", "c", "d", "e"}, "quorum lost: 1 of 3"},
		{[]ID{"b", "c"}, "quorum back: 3 of 3"},
	} {
		l.suspects = c.suspects
		q.invalidate()
		q.watch()
		q.watch() // the knowledge is the same
		got := ""
		for _, n := range base.out.Notices {
			got += fmt.Sprintf("%v: %d of %d", n.Kind, n.Present, n.Needed)
		}
		base.out = Ready{}
		if got != c.want {
			t.Errorf("step %d: %q, want %q", i, got, c.want)
		}
	}
}

// The contacts of a newcomer are asked in turn. The first answer sets the epoch of the request;
// later answers do not change the epoch.
func TestJoinerAsksInTurn(t *testing.T) {
	base := &membership{cfg: Config{Self: Member{ID: "new"}}.withDefaults(), rank: -1}
	j := &joiner{membership: base, contacts: []ID{"a"}}
	j.meet("b")
	j.meet("a")
	want := []string{"0 a", "8 b", "24 a", "56 b"}
	if got := sentBy(base, 100, j.ask); !slices.Equal(got, want) {
		t.Errorf("asked %v, want %v", got, want)
	}
	j.learnEpoch(Message{From: "b", Epoch: 3})
	if msg := base.out.Messages; len(msg) != 1 || msg[0].To != "b" || msg[0].Request.At != 3 {
		t.Errorf("after the first answer: %+v", msg)
	}
	base.out = Ready{}
	j.learnEpoch(Message{From: "b", Epoch: 5})
	if got := sentBy(base, 1, j.ask); !slices.Equal(got, []string{"100 a"}) || j.at != 3 {
		t.Errorf("after a later view: %v, request of epoch %d", got, j.at)
	}
}
