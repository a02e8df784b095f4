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
	return startOrder{Launcher: "launcher", Job: "job", Secret: bytes.Repeat([]byte{7}, secretSize)}
}

// met returns a rendezvous whose n peers have started.
func met(t *testing.T, n int) *rendezvous {
	t.Helper()
	r := newRendezvous(n, testOrder(), false)
	for i := range n {
		r.hello(i, elastic.Member{ID: peerID(i)})
	}
	if !r.started {
		t.Fatal("not started")
	}
	return r
}

func TestRendezvousAllJoin(t *testing.T) {
	r := newRendezvous(3, testOrder(), false)
	for _, i := range []int{2, 0} {
		if got := r.hello(i, elastic.Member{ID: peerID(i)}); got != nil {
			t.Fatalf("peer %d: messages %v before all are there", i, got)
		}
	}
	messages := r.hello(1, elastic.Member{ID: peerID(1), Index: 77})
	if len(messages) != 3 || !r.started {
		t.Fatalf("started %v, messages %v", r.started, messages)
	}
	for i, l := range messages {
		s := l.msg.Start
		if l.to != i || s == nil || len(s.Peers) != 3 || !s.Sole || s.Root == "" || len(s.Pass) > 0 {
			t.Fatalf("message %d: %+v", i, l)
		}
		if p := s.Peers[i]; p.ID != peerID(i) || p.Index != i || p.Launcher != "launcher" {
			t.Errorf("rank %d is %+v", i, p)
		}
	}
	if r.index(peerID(1).Short()) != 1 || r.index("nobody") != -1 {
		t.Error("the index of an ID is wrong")
	}
}

func TestRendezvousBroken(t *testing.T) {
	r := newRendezvous(3, testOrder(), false)
	r.hello(0, elastic.Member{ID: peerID(0)})
	messages := r.recordExit(1, "exited with status 3", true)
	if len(messages) != 1 || messages[0].to != 0 || !strings.Contains(messages[0].msg.Abort, "peer 1 exited with status 3") {
		t.Fatalf("got %+v", messages)
	}
	messages = r.hello(2, elastic.Member{ID: peerID(2)})
	if len(messages) != 1 || messages[0].to != 2 || messages[0].msg.Abort == "" {
		t.Fatalf("late hello: got %+v", messages)
	}
	if !r.isWaiting() {
		t.Error("two programs run, and it says that none does")
	}
	r.recordExit(0, "ended", true)
	r.recordExit(2, "ended", true)
	if r.isWaiting() {
		t.Error("all programs have ended, and it says that some run")
	}
}

func TestRendezvousSecondHello(t *testing.T) {
	r := newRendezvous(2, testOrder(), false)
	r.hello(0, elastic.Member{ID: peerID(0)})
	if got := r.hello(0, elastic.Member{ID: peerID(0)}); len(got) != 1 || got[0].msg.Abort == "" {
		t.Errorf("got %+v, want an abort", got)
	}
}

// addressees returns the receivers of the report that id is dead.
func addressees(messages []peerMessage, id elastic.ID) []int {
	var out []int
	for _, l := range messages {
		if l.msg.Dead == id {
			out = append(out, l.to)
		}
	}
	return out
}

func TestRendezvousAnnouncesDeath(t *testing.T) {
	r := met(t, 4)
	if got := addressees(r.recordExit(1, "ended", true), peerID(1)); !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("the first death is told to %v", got)
	}
	r.hello(2, elastic.Member{ID: "new-id-of-2"}) // it was put out, and joins again
	messages := r.recordExit(2, "ended", true)
	for _, id := range []elastic.ID{peerID(2), "new-id-of-2"} {
		if got := addressees(messages, id); !slices.Equal(got, []int{0, 3}) {
			t.Errorf("the death of %s is told to %v", id, got)
		}
	}
	if r.index(peerID(2).Short()) != 2 {
		t.Error("a dead peer has lost its name")
	}
}

// A late or restarted peer gets contacts that may be alive, a pass, and all earlier deaths.
func TestRendezvousLatePeer(t *testing.T) {
	r := met(t, 3)
	r.recordExit(0, "ended", true)
	far := elastic.Member{ID: "far", Host: "elsewhere", Launcher: "another"}
	r.learn(known{Epoch: 5, Members: []elastic.Member{{ID: peerID(0), Launcher: "launcher"}, {ID: peerID(1), Launcher: "launcher"}}})
	for round, i := range []int{0, 7} {
		sole := round == 0 // later rounds know a member of another launcher
		r.expect(i)
		if r.joined(i) {
			t.Errorf("peer %d has joined before hello", i)
		}
		self := elastic.Member{ID: elastic.ID("late-" + string(rune('0'+i)))}
		messages := r.hello(i, self)
		s := messages[0].msg.Start
		if s == nil || len(s.Peers) != 0 || s.Sole != sole || !ticket.ClaimOf(s.Root, s.Pass).Proves(s.Root, string(self.ID)) || messages[0].to != i {
			t.Fatalf("peer %d: got %+v", i, messages[0])
		}
		for _, c := range s.Contacts {
			if c.ID == peerID(0) || c.ID == self.ID {
				t.Errorf("peer %d: %s is no contact", i, c.ID)
			}
		}
		if len(s.Contacts) < 2 {
			t.Errorf("peer %d: contacts %v", i, s.Contacts)
		}
		if got := addressees(messages, peerID(0)); !slices.Equal(got, []int{i}) {
			t.Errorf("peer %d: the earlier death is told to %v", i, got)
		}
		r.learn(known{Epoch: 6, Members: []elastic.Member{far, {ID: peerID(1), Launcher: "launcher"}}})
	}
	if !r.hasForeignMembers() || r.host(far.ID.Short()) != "elsewhere" {
		t.Error("a member of another launcher is not seen as such")
	}
	if r.learn(known{Epoch: 2}); len(r.latest.Members) != 2 {
		t.Error("old news replaced newer")
	}
}

// A launcher that joins by a ticket passes the ticket on to its peers, and signs no passes.
func TestRendezvousByTicket(t *testing.T) {
	r := newRendezvous(2, startOrder{Launcher: "second", Ticket: "ticket"}, true)
	if s := r.hello(1, elastic.Member{ID: peerID(1)})[0].msg.Start; s.Ticket != "ticket" || s.Root != "" || s.Pass != nil || s.Sole {
		t.Errorf("the first one is told %+v", s)
	}
	r.learn(known{Epoch: 3, Members: []elastic.Member{{ID: peerID(1), Launcher: "second"}}})
	if s := r.hello(0, elastic.Member{ID: peerID(0)})[0].msg.Start; s.Ticket != "ticket" || s.Pass != nil || len(s.Contacts) != 1 || s.Sole {
		t.Errorf("the second one is told %+v", s)
	}
}

// For any order of hellos and ends, every running peer that has said hello finally has exactly one
// answer, if all peers have said hello or one has ended. All answers are of the same kind, except
// for answers after the start of the group. Each death after the start is reported once to every
// running member.
func TestRendezvousAnswersEverybody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		r := newRendezvous(n, testOrder(), false)
		answers := make([]int, n)
		said, ended := make([]bool, n), make([]bool, n)
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			i := rapid.IntRange(0, n-1).Draw(t, "peer")
			var messages []peerMessage
			switch {
			case rapid.Bool().Draw(t, "ends"):
				if ended[i] {
					continue
				}
				ended[i] = true
				messages = r.recordExit(i, "ended", true)
			case !said[i] && !ended[i]:
				said[i] = true
				messages = r.hello(i, elastic.Member{ID: peerID(i)})
			}
			deaths := map[int]int{}
			for _, l := range messages {
				if l.msg.Dead != "" {
					deaths[l.to]++
					continue
				}
				answers[l.to]++
				if (l.msg.Start != nil) != r.started {
					t.Fatalf("answer %+v, started %v", l.msg, r.started)
				}
			}
			for k := range n {
				if due := ended[i] && r.started && said[i] && !ended[k] && len(messages) > 0 && messages[0].msg.Dead != ""; due && deaths[k] != 1 || ended[k] && deaths[k] > 0 {
					t.Fatalf("peer %d is told %d times of a death", k, deaths[k])
				}
			}
		}
		for i := range n {
			due := said[i] && !ended[i] && (r.started || r.broken != "")
			if answers[i] > 1 || due && answers[i] != 1 {
				t.Fatalf("peer %d has %d answers (due: %v)", i, answers[i], due)
			}
		}
	})
}

// The launcher that began the job signs new identities of its peers, and its key never leaves the
// launcher.
func TestRendezvousSignsNewID(t *testing.T) {
	r := met(t, 2)
	messages := r.hello(1, elastic.Member{ID: "new"})
	if len(messages) != 1 || messages[0].to != 1 || messages[0].msg.Pass == nil {
		t.Fatalf("got %+v", messages)
	}
	p := messages[0].msg.Pass
	if root := r.order.Root; p.ID != "new" || !ticket.ClaimOf(root, p.Signature).Proves(root, "new") {
		t.Errorf("got %+v", p)
	}
	line, err := message{Start: &r.order}.encode()
	if err != nil || bytes.Contains(line, []byte("secret")) {
		t.Errorf("peers are told %s, %v", line, err)
	}
}
