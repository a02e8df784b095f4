package launch

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

func peerID(i int) elastic.ID { return elastic.ID("12D3KooW-peer-" + string(rune('a'+i))) }

// testOrder returns the order of a launcher that starts a job.
func testOrder() startOrder {
	return startOrder{Launcher: "launcher", Secret: bytes.Repeat([]byte{7}, secretSize)}
}

// met returns a meeting whose n peers have started.
func met(t *testing.T, n int) *meeting {
	t.Helper()
	m := newMeeting(n, testOrder(), false)
	for i := range n {
		m.hello(i, elastic.Member{ID: peerID(i)})
	}
	if !m.started {
		t.Fatal("not started")
	}
	return m
}

func TestMeetingAllJoin(t *testing.T) {
	m := newMeeting(3, testOrder(), false)
	for _, i := range []int{2, 0} {
		if got := m.hello(i, elastic.Member{ID: peerID(i)}); got != nil {
			t.Fatalf("peer %d: letters %v before all are there", i, got)
		}
	}
	letters := m.hello(1, elastic.Member{ID: peerID(1), Index: 77})
	if len(letters) != 3 || !m.started {
		t.Fatalf("started %v, letters %v", m.started, letters)
	}
	for i, l := range letters {
		s := l.msg.Start
		if l.to != i || s == nil || len(s.Peers) != 3 || !s.Sole || s.Root == "" || len(s.Pass) > 0 {
			t.Fatalf("letter %d: %+v", i, l)
		}
		if p := s.Peers[i]; p.ID != peerID(i) || p.Index != i || p.Launcher != "launcher" {
			t.Errorf("rank %d is %+v", i, p)
		}
	}
	if m.index(peerID(1).Short()) != 1 || m.index("nobody") != -1 {
		t.Error("the index of an ID is wrong")
	}
}

func TestMeetingBroken(t *testing.T) {
	m := newMeeting(3, testOrder(), false)
	m.hello(0, elastic.Member{ID: peerID(0)})
	letters := m.exit(1, "exited with status 3", true)
	if len(letters) != 1 || letters[0].to != 0 || !strings.Contains(letters[0].msg.Abort, "peer 1 exited with status 3") {
		t.Fatalf("got %+v", letters)
	}
	letters = m.hello(2, elastic.Member{ID: peerID(2)})
	if len(letters) != 1 || letters[0].to != 2 || letters[0].msg.Abort == "" {
		t.Fatalf("late hello: got %+v", letters)
	}
}

func TestMeetingSecondHello(t *testing.T) {
	m := newMeeting(2, testOrder(), false)
	m.hello(0, elastic.Member{ID: peerID(0)})
	if got := m.hello(0, elastic.Member{ID: peerID(0)}); len(got) != 1 || got[0].msg.Abort == "" {
		t.Errorf("got %+v, want an abort", got)
	}
}

// addressees returns the receivers of the report that id is dead.
func addressees(letters []letter, id elastic.ID) []int {
	var out []int
	for _, l := range letters {
		if l.msg.Dead == id {
			out = append(out, l.to)
		}
	}
	return out
}

func TestMeetingDeathIsTold(t *testing.T) {
	m := met(t, 4)
	if got := addressees(m.exit(1, "ended", true), peerID(1)); !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("the first death is told to %v", got)
	}
	m.hello(2, elastic.Member{ID: "new-id-of-2"}) // it was put out, and comes back
	letters := m.exit(2, "ended", true)
	for _, id := range []elastic.ID{peerID(2), "new-id-of-2"} {
		if got := addressees(letters, id); !slices.Equal(got, []int{0, 3}) {
			t.Errorf("the death of %s is told to %v", id, got)
		}
	}
	if m.index(peerID(2).Short()) != 2 {
		t.Error("a dead peer has lost its name")
	}
}

// A late or restarted peer gets contacts that may be alive, a pass, and all earlier deaths.
func TestMeetingLatePeer(t *testing.T) {
	m := met(t, 3)
	m.exit(0, "ended", true)
	far := elastic.Member{ID: "far", Host: "elsewhere", Launcher: "another"}
	m.learn(known{Epoch: 5, Members: []elastic.Member{{ID: peerID(0), Launcher: "launcher"}, {ID: peerID(1), Launcher: "launcher"}}})
	for round, i := range []int{0, 7} {
		sole := round == 0 // later rounds know a member of another launcher
		m.expect(i)
		if m.joined(i) {
			t.Errorf("peer %d has joined before hello", i)
		}
		self := elastic.Member{ID: elastic.ID("late-" + string(rune('0'+i)))}
		letters := m.hello(i, self)
		s := letters[0].msg.Start
		if s == nil || len(s.Peers) != 0 || s.Sole != sole || !ticket.ClaimOf(s.Root, s.Pass).Proves(s.Root, string(self.ID)) || letters[0].to != i {
			t.Fatalf("peer %d: got %+v", i, letters[0])
		}
		for _, c := range s.Contacts {
			if c.ID == peerID(0) || c.ID == self.ID {
				t.Errorf("peer %d: %s is no contact", i, c.ID)
			}
		}
		if len(s.Contacts) < 2 {
			t.Errorf("peer %d: contacts %v", i, s.Contacts)
		}
		if got := addressees(letters, peerID(0)); !slices.Equal(got, []int{i}) {
			t.Errorf("peer %d: the earlier death is told to %v", i, got)
		}
		m.learn(known{Epoch: 6, Members: []elastic.Member{far, {ID: peerID(1), Launcher: "launcher"}}})
	}
	if !m.strangers() || m.host(far.ID.Short()) != "elsewhere" {
		t.Error("a member of another launcher is not seen as such")
	}
	if m.learn(known{Epoch: 2}); len(m.latest.Members) != 2 {
		t.Error("old news replaced newer")
	}
}

// A launcher that joins by a ticket passes it on, and signs nothing.
func TestMeetingByTicket(t *testing.T) {
	m := newMeeting(2, startOrder{Launcher: "second", Ticket: "ticket"}, true)
	if s := m.hello(1, elastic.Member{ID: peerID(1)})[0].msg.Start; s.Ticket != "ticket" || s.Root != "" || s.Pass != nil || s.Sole {
		t.Errorf("the first one is told %+v", s)
	}
	m.learn(known{Epoch: 3, Members: []elastic.Member{{ID: peerID(1), Launcher: "second"}}})
	if s := m.hello(0, elastic.Member{ID: peerID(0)})[0].msg.Start; s.Ticket != "ticket" || s.Pass != nil || len(s.Contacts) != 1 || s.Sole {
		t.Errorf("the second one is told %+v", s)
	}
}

// In any order of hellos and ends, every running peer that has said hello finally has exactly one
// answer, if all have said hello or one has ended. All answers are of one kind unless the group
// had started. Each death after the start is reported to every running member, once.
func TestMeetingAnswersEverybody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		m := newMeeting(n, testOrder(), false)
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
				letters = m.exit(i, "ended", true)
			case !said[i] && !ended[i]:
				said[i] = true
				letters = m.hello(i, elastic.Member{ID: peerID(i)})
			}
			told := map[int]int{}
			for _, l := range letters {
				if l.msg.Dead != "" {
					told[l.to]++
					continue
				}
				answers[l.to]++
				if (l.msg.Start != nil) != m.started {
					t.Fatalf("answer %+v, started %v", l.msg, m.started)
				}
			}
			for k := range n {
				if due := ended[i] && m.started && said[i] && !ended[k] && len(letters) > 0 && letters[0].msg.Dead != ""; due && told[k] != 1 || ended[k] && told[k] > 0 {
					t.Fatalf("peer %d is told %d times of a death", k, told[k])
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

// The launcher that began the job signs new identities of its peers, and its key never leaves it.
func TestMeetingSignsForNewID(t *testing.T) {
	m := met(t, 2)
	letters := m.hello(1, elastic.Member{ID: "new"})
	if len(letters) != 1 || letters[0].to != 1 || letters[0].msg.Pass == nil {
		t.Fatalf("got %+v", letters)
	}
	p := letters[0].msg.Pass
	if root := m.order.Root; p.ID != "new" || !ticket.ClaimOf(root, p.Signature).Proves(root, "new") {
		t.Errorf("got %+v", p)
	}
	line, err := message{Start: &m.order}.encode()
	if err != nil || bytes.Contains(line, []byte("secret")) {
		t.Errorf("peers are told %s, %v", line, err)
	}
}
