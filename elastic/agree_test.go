package elastic

import (
	"encoding/json"
	"errors"
	"testing"
)

func twoMembers() View {
	return View{Epoch: 1, Members: []Member{{ID: "a"}, {ID: "b"}}, Voters: []ID{"a", "b"}}
}

// proposing returns the message with which a member proposes v.
func proposing(v View) ([]byte, error) {
	hash := v.Hash()
	return json.Marshal(proposal{Epoch: v.Epoch, Hash: hash[:]})
}

// Only the proposal of the very same view is accepted, whatever arrives.
func FuzzProposal(f *testing.F) {
	v := twoMembers()
	good, err := proposing(v)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Add([]byte(`{"epoch":1,"hash":""}`))
	f.Add([]byte(`{"epoch":-1,"hash":7}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p proposal
		hash := v.Hash()
		same := json.Unmarshal(b, &p) == nil && p.Epoch == 1 && string(p.Hash) == string(hash[:])
		if err := check(PeerEvent{Peer: "b", Kind: PeerMessage, Data: b}, v); (err == nil) != same {
			t.Fatalf("%q: %v", b, err)
		}
	})
}

func TestOtherProposals(t *testing.T) {
	other, later := twoMembers(), twoMembers()
	other.Members[0], other.Members[1] = other.Members[1], other.Members[0]
	later.Epoch = 2
	for _, v := range []View{other, later} {
		b, err := proposing(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(PeerEvent{Peer: "b", Data: b}, twoMembers()); err == nil {
			t.Errorf("%v was taken for %v", v, twoMembers())
		}
	}
}

// scripted is a control network that says what it was told to say.
type scripted struct {
	Control
	events chan PeerEvent
}

func (s scripted) Events() <-chan PeerEvent { return s.events }

// The reader counts each member once, and no one else.
func TestReadCountsMembersOnce(t *testing.T) {
	good, err := proposing(twoMembers())
	if err != nil {
		t.Fatal(err)
	}
	v := twoMembers()
	v.Members = append(v.Members, Member{ID: "c"})
	three, err := proposing(v)
	if err != nil {
		t.Fatal(err)
	}
	message := func(from ID, data []byte) PeerEvent { return PeerEvent{Peer: from, Kind: PeerMessage, Data: data} }
	tests := map[string]struct {
		events []PeerEvent
		agreed bool
	}{
		"all":             {[]PeerEvent{{Peer: "b", Kind: PeerUp}, message("b", three), message("c", three)}, true},
		"one twice":       {[]PeerEvent{message("b", three), message("b", three)}, false},
		"itself":          {[]PeerEvent{message("a", three), message("b", three)}, false},
		"a stranger":      {[]PeerEvent{message("d", three), message("b", three)}, false},
		"garbage first":   {[]PeerEvent{message("c", []byte("{")), message("b", three), message("c", three)}, false},
		"another view":    {[]PeerEvent{message("b", good), message("c", three)}, false},
		"garbage, d's":    {[]PeerEvent{message("d", []byte("{")), message("b", three), message("c", three)}, true},
		"down in between": {[]PeerEvent{message("b", three), {Peer: "b", Kind: PeerDown, Err: errors.New("x")}, message("c", three)}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			events := make(chan PeerEvent, len(test.events))
			for _, e := range test.events {
				events <- e
			}
			close(events)
			g := &Group{cfg: Config{Self: Member{ID: "a"}, Control: scripted{events: events}}}
			agreed := make(chan error, 1)
			g.read(v, agreed)
			if err := <-agreed; (err == nil) != test.agreed {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLossCause(t *testing.T) {
	for words, want := range map[string]string{"closed": "exit", "stream closed by peer": "exit", "killed": "reset", "": "reset"} {
		if got := lossCause(words); got != want {
			t.Errorf("%q: got %q, want %q", words, got, want)
		}
	}
}
