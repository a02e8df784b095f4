package member

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
)

// seal provides the keys of a test: only the holder of an ID's seal can sign for the ID.
type seal ID

func (s seal) Sign(text []byte) []byte {
	sum := sha256.Sum256(append([]byte(s), text...))
	return sum[:]
}

func (s seal) Verify(id ID, text, signature []byte) bool {
	return bytes.Equal(seal(id).Sign(text), signature)
}

// machineOf returns the machine of self, a member of the first view of ids.
func machineOf(t *testing.T, self ID, cfg Config, ids ...ID) *Machine {
	cfg.Self, cfg.Keys = Member{ID: self}, seal(self)
	m, err := New(cfg, membersOf(ids...))
	if err != nil {
		t.Fatal(err)
	}
	m.Ready()
	return m
}

// decided returns the view that follows v by c, and c with a certificate of the signers.
func decided(t *testing.T, v View, c Change, signers ...ID) (View, Decision) {
	after, err := v.Apply(c)
	if err != nil {
		t.Fatal(err)
	}
	d := Decision{c, Certificate{Ballot: Ballot{3, 1}}}
	for _, id := range signers {
		rank := max(v.Rank(id), 0) // a signer that is no member claims the first rank
		d.Proof.Votes = append(d.Proof.Votes, Vote{uint32(rank), seal(id).Sign(ballotText(d.Proof.Ballot, after.hash))})
	}
	return after, d
}

// lost returns a change that loses members.
func lost(ids ...ID) Change { return Change{Lost: ids} }

// walkers returns member a of a group of four after member d was put out, and the group's first
// view.
func walkers(t *testing.T) (m *Machine, first View) {
	m = machineOf(t, "a", Config{}, "a", "b", "c", "d")
	first = m.view
	v, d := decided(t, first, lost("d"), "a", "b", "c")
	m.move(d, v)
	m.Step(Stable{1}) // carries out all that the new view made due
	m.Ready()
	return m, first
}

// forged returns the messages of a kind that would do the most harm if they were believed.
func forged(t *testing.T, k Kind, m *Machine, first View, from ID) []Message {
	all := []Message{{}}
	ruin := lost("b", "c")
	_, stolen := decided(t, m.view, ruin, from, from)
	onlyJoined, fork := decided(t, first, Change{Lost: []ID{"a"}, Forced: true}, from)
	own, err := First(membersOf(from, "e"))
	if err != nil {
		t.Fatal(err)
	}
	own.Epoch = 1 << 40
	own.hash, own.size = own.contentHash()
	same := own
	same.hash = m.view.hash // not the hash of the content
	high := Key{Stable: 1 << 60, Epoch: 1 << 40, ID: from}
	switch k {
	case Ask:
		all = append(all, Message{Request: &Request{Member{ID: from}, 1}})
	case Tell, Promise:
		all = []Message{{Report: &Report{Seq: 1 << 40, Unreachable: []ID{"b"}, Dead: []ID{"b", "c"}, Leaving: true, Renew: true}, Ballot: Ballot{9, 1}}}
	case Prepare, Accepted, Reject:
		all = []Message{{Ballot: Ballot{1 << 40, 1}, Seen: Ballot{1 << 41, 1}}}
	case Accept:
		all = []Message{{Ballot: Ballot{1 << 40, 1}, Change: &ruin}}
	case Chain:
		all = []Message{
			{After: m.view.hash, Changes: []Decision{{Change: ruin}}},
			{After: m.view.hash, Changes: []Decision{stolen}},
			{View: own.hash, Base: &own, Key: high},
			{View: m.view.hash, Base: &same, Key: high},
			{View: onlyJoined.hash, Base: &first, Changes: []Decision{fork}, Key: high},
			{View: onlyJoined.hash, After: first.hash, Changes: []Decision{fork}, Key: high},
		}
	}
	for i := range all {
		all[i].Kind, all[i].From = k, from
		if all[i].View == (Hash{}) && k != Ask {
			all[i].View = m.view.hash
		}
	}
	return all
}

// stateOf describes all fields of a machine that messages may change.
func stateOf(m *Machine) string {
	return fmt.Sprint(m.phase, m.view, m.acceptor, m.reports.last, m.local, m.reporter, m.proposer.stage, m.proposer.round, len(m.history.entries))
}

// A peer that is in no view or was put out changes nothing at a member, whatever message the peer
// sends or forges. At most the member answers.
func TestWhoIsBelieved(t *testing.T) {
	classes := map[ID]sender{
		"b":      ofView,
		"d":      outsider, // was put out
		"branch": outsider, // has entered another branch
		"new":    outsider, // asks to join, or holds a ticket
	}
	for k := Kind(1); ; k++ {
		if _, known := layout(k); !known {
			break
		}
		if _, ok := treatmentOf(k, ofView); !ok {
			t.Errorf("%v has no row in the table", k)
		}
		for from, class := range classes {
			m, first := walkers(t)
			if got := m.sender(from); got != class {
				t.Fatalf("%s is %v, want %v", from, got, class)
			}
			if class == ofView && k != Fence {
				continue
			}
			for i, msg := range forged(t, k, m, first, from) {
				before := stateOf(m)
				m.Step(Received{msg})
				if after := stateOf(m); after != before {
					t.Errorf("%v %d of %s changes\n%s to\n%s", k, i, from, before, after)
				}
				r := m.Ready()
				if len(r.Views) > 0 || k == Fence && len(r.Messages) > 0 || len(r.Messages) > 1 {
					t.Errorf("%v %d of %s: %+v", k, i, from, r)
				}
				for _, n := range r.Notices {
					if n.Kind != Asked {
						t.Errorf("%v %d of %s: %v", k, i, from, n)
					}
				}
			}
		}
	}
}

// A newcomer believes only its contacts.
func TestWhomJoinersBelieve(t *testing.T) {
	whole, err := First(membersOf("a", "new"))
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []ID{"stranger", "a"} {
		m := NewJoiner(Config{Self: Member{ID: "new"}, Contacts: []ID{"a"}})
		m.Step(Received{Message{Kind: Status, From: from, Epoch: 7}})
		m.Step(Received{Message{Kind: Chain, From: from, Base: &whole}})
		if got, want := m.phase == inside && m.joiner.at == 7, from == "a"; got != want {
			t.Errorf("a view of %s is entered: %v", from, got)
		}
		m = NewJoiner(Config{Self: Member{ID: "new"}, Contacts: []ID{"a"}})
		m.Step(Received{Message{Kind: Fence, From: from}})
		if got, want := m.Out(), from == "a"; got != want {
			t.Errorf("a fence of %s counts: %v", from, got)
		}
	}
}

// An outsider's change counts if at least half of the voters have signed it, each once, and all for
// one ballot and one view. For a forced change one signature suffices, if views can be forced in
// the group.
func TestCertificates(t *testing.T) {
	join := Change{Join: membersOf("e")}
	forced := Change{Lost: []ID{"c", "d"}, Forced: true}
	for name, c := range map[string]struct {
		any     bool
		change  Change
		signers []ID
		spoil   func(*Certificate)
		want    bool
	}{
		"half":                     {change: join, signers: []ID{"b", "c"}, want: true},
		"majority":                 {change: join, signers: []ID{"b", "c", "d"}, want: true},
		"one":                      {change: join, signers: []ID{"b"}},
		"nobody":                   {change: join},
		"one twice":                {change: join, signers: []ID{"b", "b"}},
		"a stranger among them":    {change: join, signers: []ID{"b", "e"}},
		"another ballot":           {change: join, signers: []ID{"b", "c"}, spoil: func(c *Certificate) { c.Ballot.Round++ }},
		"a rank that nobody has":   {change: join, signers: []ID{"b", "c"}, spoil: func(c *Certificate) { c.Votes[0].Rank = 4 }},
		"another's rank":           {change: join, signers: []ID{"b", "c"}, spoil: func(c *Certificate) { c.Votes[0].Rank = 3 }},
		"forced":                   {any: true, change: forced, signers: []ID{"b"}, want: true},
		"forced by a stranger":     {any: true, change: forced, signers: []ID{"e"}},
		"forced where nobody does": {change: forced, signers: []ID{"b"}},
		"forced by half":           {change: forced, signers: []ID{"b", "a"}, want: true},
		"not forced, any":          {any: true, change: join, signers: []ID{"b"}},
	} {
		m := machineOf(t, "a", Config{Any: c.any}, "a", "b", "c", "d")
		after, d := decided(t, m.view, c.change, c.signers...)
		if c.spoil != nil {
			c.spoil(&d.Proof)
		}
		m.Step(Received{Message{Kind: Chain, From: "e", View: after.hash, After: m.view.hash, Changes: []Decision{d}}})
		if got := m.view.hash == after.hash; got != c.want {
			t.Errorf("%s: counts: %v", name, got)
		}
		if b := Encode(nil, Message{Kind: Chain, Changes: m.history.decisions(0)}); c.want {
			if msg, err := Decode(b); err != nil || !m.local.verifier().proved(m.history.base, m.view, msg.Changes[0]) {
				t.Errorf("%s: cannot be proved to others: %v", name, err)
			}
		}
	}
}

// A member of another branch fences this member if the other branch is ahead and is proved from a
// common view. It can fence a member only where views can be forced.
func TestProvedBranch(t *testing.T) {
	for name, c := range map[string]struct {
		any    bool
		signer ID
		from   ID
		key    Key
		want   bool
	}{
		"ahead":               {true, "c", "c", Key{Stable: 9}, true},
		"of its newcomer":     {true, "c", "e", Key{Stable: 9}, true},
		"behind":              {true, "c", "c", Key{}, false},
		"of an earlier view":  {true, "c", "c", Key{Stable: 9, Epoch: 1}, true},
		"forged founder":      {true, "c", "c", Key{Stable: 9, Founder: "\x01"}, false},
		"forged epoch":        {true, "c", "c", Key{Stable: 9, Founder: "c", Epoch: 5}, false},
		"with another's ID":   {true, "c", "c", Key{Stable: 9, ID: "b"}, false},
		"signed by a joiner":  {true, "e", "e", Key{Stable: 9}, false},
		"brought by nobody":   {true, "c", "z", Key{Stable: 9}, false},
		"where nobody forces": {false, "c", "c", Key{Stable: 9}, false},
	} {
		m := machineOf(t, "a", Config{Any: c.any}, "a", "b", "c")
		first := m.view
		c.key.ID = cmp.Or(c.key.ID, c.from)
		v, d := decided(t, first, Change{Lost: []ID{"c"}, Forced: true}, "a")
		m.move(d, v)
		m.Step(Stable{5})
		one, d1 := decided(t, first, Change{Lost: []ID{"a", "b"}, Forced: true}, c.signer)
		two, d2 := decided(t, one, Change{Join: membersOf("e")}, "c")
		m.Step(Received{Message{Kind: Chain, From: c.from, View: two.hash, Base: &first, Changes: []Decision{d1, d2}, Key: c.key}})
		if m.Out() != c.want {
			t.Errorf("%s: out: %v", name, m.Out())
		}
	}
}

// A flood of messages from outsiders does not prevent an Ask to a member.
func TestFloodOfOutsiders(t *testing.T) {
	m, _ := walkers(t)
	for range 1000 {
		m.Step(Received{Message{Kind: Status, From: "new", View: Hash{1}}})
	}
	if n := len(m.Ready().Messages); n != 1 {
		t.Errorf("%d messages in one tick", n)
	}
	m.Step(Received{Message{Kind: Status, From: "b", View: Hash{2}}})
	asked := slices.ContainsFunc(m.Ready().Messages, func(o Message) bool { return o.Kind == Ask && o.To == "b" })
	if !asked {
		t.Error("a member is not asked for its view after a flood of outsiders")
	}
}
