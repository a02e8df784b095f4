package launch

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
)

func peerID(i int) elastic.ID { return elastic.ID("12D3KooW-peer-" + string(rune('a'+i))) }

func TestMeetingAllJoin(t *testing.T) {
	m := newMeeting(3)
	for _, i := range []int{2, 0} {
		if got := m.hello(i, elastic.Member{ID: peerID(i)}); got != nil {
			t.Fatalf("peer %d: letters %v before all are there", i, got)
		}
	}
	if !m.wanted() {
		t.Error("not wanted while peers wait")
	}
	letters := m.hello(1, elastic.Member{ID: peerID(1), Index: 77})
	if len(letters) != 3 || !m.started || m.wanted() {
		t.Fatalf("started %v, letters %v", m.started, letters)
	}
	for i, l := range letters {
		if l.to != i || len(l.msg.Peers) != 3 {
			t.Errorf("letter %d: %+v", i, l)
		}
		if p := l.msg.Peers[i]; p.ID != peerID(i) || p.Index != i {
			t.Errorf("rank %d is %+v", i, p)
		}
	}
	if got := m.exit(0, "exited with status 0"); got != nil {
		t.Errorf("after the start an end is told: %v", got)
	}
	if m.index(peerID(1).Short()) != 1 || m.index("nobody") != -1 {
		t.Error("index of a short ID is wrong")
	}
}

func TestMeetingBroken(t *testing.T) {
	m := newMeeting(3)
	m.hello(0, elastic.Member{ID: peerID(0)})
	letters := m.exit(1, "exited with status 3")
	if len(letters) != 1 || letters[0].to != 0 || !strings.Contains(letters[0].msg.Abort, "peer 1 exited with status 3") {
		t.Fatalf("got %+v", letters)
	}
	letters = m.hello(2, elastic.Member{ID: peerID(2)})
	if len(letters) != 1 || letters[0].to != 2 || letters[0].msg.Abort == "" {
		t.Fatalf("late hello: got %+v", letters)
	}
}

func TestMeetingSecondHello(t *testing.T) {
	m := newMeeting(1)
	m.hello(0, elastic.Member{ID: peerID(0)})
	if got := m.hello(0, elastic.Member{ID: peerID(0)}); len(got) != 1 || got[0].msg.Abort == "" {
		t.Errorf("got %+v, want an abort", got)
	}
}

// In any order of hellos and ends every peer that said hello and still runs has
// exactly one answer in the end, if all have said hello or one ended; and all answers
// are of one kind unless the group had started.
func TestMeetingAnswersEverybody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		m := newMeeting(n)
		answers := make([]int, n)
		said, ended := make([]bool, n), make([]bool, n)
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			i := rapid.IntRange(0, n-1).Draw(t, "peer")
			var letters []letter
			switch {
			case rapid.Bool().Draw(t, "ends"):
				if ended[i] {
					continue
				}
				ended[i] = true
				letters = m.exit(i, "ended")
			case !said[i] && !ended[i]:
				said[i] = true
				letters = m.hello(i, elastic.Member{ID: peerID(i)})
			}
			for _, l := range letters {
				answers[l.to]++
				if (len(l.msg.Peers) == n) != m.started {
					t.Fatalf("answer %+v, started %v", l.msg, m.started)
				}
			}
		}
		for i := range n {
			due := said[i] && !ended[i] && (m.started || m.broken != "")
			if answers[i] > 1 || due && answers[i] != 1 {
				t.Fatalf("peer %d has %d answers (due: %v)", i, answers[i], due)
			}
		}
	})
}
