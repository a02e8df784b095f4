package member

import "testing"

// A proposer gives way to another one for a while, but not to one that it suspects.
func TestGivesWay(t *testing.T) {
	base := aloneIn(t, "c", "a", "b", "c")
	l := &localState{membership: base}
	p := &proposer{membership: base, local: l}
	p.yield(Ballot{Round: 1}, "a")
	if !p.waits() {
		t.Error("does not give way")
	}
	l.suspect(Suspect{Peer: "a"})
	if p.waits() {
		t.Error("gives way to a proposer that it suspects")
	}
	p.stage, p.ballot = preparing, Ballot{Round: 2, Rank: 2}
	p.rejected(Message{Ballot: p.ballot, Seen: Ballot{Round: 3}})
	if !p.waits() {
		t.Error("does not back off after a rejection")
	}
}
