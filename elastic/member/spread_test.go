package member

import (
	"fmt"
	"slices"
	"testing"
)

// crowd is a group of machines whose messages arrive at once and in order, without ticks.
type crowd struct {
	machines []*Machine
	sent     []int // number of messages by rank
	seen     func(msg Message)
}

func newTestCrowd(t *testing.T, n int) *crowd {
	var members []Member
	for i := range n {
		members = append(members, Member{ID: ID(fmt.Sprintf("%04d", i))})
	}
	c := &crowd{sent: make([]int, n), seen: func(Message) {}}
	views := NewViews(16)
	for _, p := range members {
		m, err := New(Config{Self: p, Direct: 4, Fan: 4, Views: views}, members)
		if err != nil {
			t.Fatal(err)
		}
		m.Ready()
		c.machines = append(c.machines, m)
	}
	return c
}

// settle delivers messages, through their encoding, until there are none.
func (c *crowd) settle(t *testing.T) {
	rank := make(map[ID]int)
	for i, m := range c.machines {
		rank[m.cfg.Self.ID] = i
	}
	for busy := true; busy; {
		busy = false
		for i, m := range c.machines {
			for _, msg := range m.Ready().Messages {
				busy = true
				c.sent[i]++
				c.seen(msg)
				got, err := Decode(Encode(nil, msg))
				if err != nil {
					t.Fatal(err)
				}
				got.From, got.To = msg.From, msg.To
				if to, ok := rank[msg.To]; ok {
					c.machines[to].Step(Received{got})
				}
			}
		}
	}
}

// A change reaches all members of a large group, and the member that decided the change receives
// all acknowledgements, although no member sends more than a few messages and no message is
// repeated. Long proofs stay with the member that decided.
func TestSpread(t *testing.T) {
	const n = 300
	c := newTestCrowd(t, n)
	c.seen = func(msg Message) {
		if s := msg.Spread; msg.Kind == Branch && s.Inner.Kind == Chain && len(s.Inner.Changes[0].Proof.Votes) > 0 {
			t.Error("a long proof is told to all")
		}
	}
	c.machines[0].Step(Admit{Request{Member{ID: "new"}, 1}})
	c.settle(t)
	for i, m := range c.machines {
		if m.view.Epoch != 2 || !m.Settled() && i > 0 {
			t.Errorf("member %d is in epoch %d, settled: %v", i, m.view.Epoch, m.Settled())
		}
	}
	if open := c.machines[0].dissemination.open; !slices.Equal(open, idSet{"new"}) {
		t.Errorf("%d members have not acknowledged", len(open))
	}
	// A change takes three rounds. In each the member sends four Branch messages and an answer.
	if most := slices.Max(c.sent); most > 3*(4+1)+2 {
		t.Errorf("a member sends %d messages", most)
	}
	if votes := len(c.machines[0].history.entries[0].decision.Proof.Votes); votes != 0 {
		t.Errorf("%d votes without keys", votes)
	}
}

// A member that another member reports as unreachable is not used as a relay.
func TestDoubtfulIsNoRelay(t *testing.T) {
	c := newTestCrowd(t, 60)
	// Without the suspicion member 0002 would be the first relay: it is the first member of the
	// first part in the first spread.
	c.machines[2].Step(Suspect{Peer: "0002"})
	c.machines[7].Step(Suspect{Peer: "0002"})
	relays := 0
	c.seen = func(msg Message) {
		if msg.Kind == Branch && msg.From == "0000" {
			relays++
			if msg.To == "0002" && len(msg.Spread.Ranks) > 0 {
				t.Error("an unreliable member is a relay")
			}
		}
	}
	c.settle(t)
	if relays == 0 {
		t.Error("no tree")
	}
}

// Answers are merged only if they are equal except for their authors, and have no change, report or
// signature.
func TestAnswersStayApart(t *testing.T) {
	b, o := Ballot{Round: 1}, Ballot{Round: 2}
	change := &Change{Lost: []ID{"a"}}
	all := []Message{
		{Kind: Status}, {Kind: Status, View: Hash{1}},
		{Kind: Promise, Ballot: b}, {Kind: Promise, Ballot: o}, {Kind: Promise, Ballot: b, Seen: o, Change: change},
		{Kind: Promise, Ballot: b, Seen: o, Change: change}, {Kind: Promise, Ballot: b, Report: &Report{Seq: 3}},
		{Kind: Accepted, Ballot: b}, {Kind: Accepted, Ballot: b, Signature: []byte{1}}, {Kind: Reject, Ballot: b, Seen: o}, {Kind: Reject, Ballot: b},
	}
	var g gathering
	for i := range all {
		g.add(Answer{[]uint32{uint32(i)}, &all[i]})
	}
	if len(g.answers) != len(all) {
		t.Errorf("%d different answers become %d", len(all), len(g.answers))
	}
	for i := range all {
		again := all[i]
		g.add(Answer{[]uint32{uint32(20 + i)}, &again})
	}
	if len(g.answers) != len(all)+4 { // the answers with a change, a report or a signature
		t.Errorf("all twice, they are %d", len(g.answers))
	}
	if !slices.Equal(g.answers[0].Ranks, []uint32{0, 20}) {
		t.Errorf("the first comes from %v", g.answers[0].Ranks)
	}
}

// In a large group a member sends its Status messages only to the members at certain distances on
// the ring, to each of them once in a round. An unreachable member is replaced by the next one.
func TestBeatsGoToFew(t *testing.T) {
	const n = 300
	c := newTestCrowd(t, n)
	self := c.machines[7]
	told := func(ticks uint64) map[ID]int {
		all := make(map[ID]int)
		for range ticks {
			self.Tick()
			for _, msg := range self.Ready().Messages {
				if msg.Kind == Status {
					all[msg.To]++
				}
			}
		}
		return all
	}
	want := make(map[ID]bool)
	for d := 1; d <= n/2; d *= 2 {
		want[self.view.Members[(7+d)%n].ID], want[self.view.Members[(7-d+n)%n].ID] = true, true
	}
	all := told(self.cfg.Beat * uint64(len(want)))
	for id := range want {
		if all[id] != 1 {
			t.Errorf("%s is told %d times in one round", id, all[id])
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d are told, not %d", len(all), len(want))
	}
	self.local.suspects.add("0009")
	if all = told(self.cfg.Beat * uint64(len(want))); all["0009"] != 0 || all["0010"] != 1 {
		t.Errorf("the one that cannot be reached is told %d times, the one behind it %d", all["0009"], all["0010"])
	}
}

// Newcomers of a large group get their votes: their Status messages reach the proposer, wherever
// the newcomers are on the ring.
func TestNewcomersOfLargeGroupVote(t *testing.T) {
	c := newTestCrowd(t, 100)
	for i := range 6 {
		self := Member{ID: ID(fmt.Sprintf("new%d", i))}
		c.machines[0].Step(Admit{Request{self, 1}})
		// The newcomers ask a member that does not decide the change.
		c.machines = append(c.machines, NewJoiner(Config{Self: self, Direct: 4, Fan: 4, Views: c.machines[0].cfg.Views, Contacts: []ID{"0050"}}))
		c.sent = append(c.sent, 0)
	}
	for range 100 {
		c.settle(t)
		for _, m := range c.machines {
			m.Tick()
		}
	}
	for i, m := range c.machines {
		if v := m.view; len(v.Members) != 106 || v.Voters != 106 {
			t.Fatalf("member %d is in epoch %d of %d, of which %d vote", i, v.Epoch, len(v.Members), v.Voters)
		}
	}
}
