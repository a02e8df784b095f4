package member

import "testing"

// A proposer backs off for the ballot of another proposer. For a proposer that it suspects it backs
// off once, and later only if that proposer's ballot overtakes a ballot of its own.
func TestGivesWay(t *testing.T) {
	base := aloneIn(t, "c", "a", "b", "c")
	l := &localState{membership: base}
	p := &proposer{membership: base, local: l}
	if p.stepDown(Ballot{Round: 1}, "a"); p.wait == 0 {
		t.Error("does not give way")
	}
	l.suspect(Suspect{Peer: "a"})
	p.wait = 0
	if p.stepDown(Ballot{Round: 1}, "a"); p.wait == 0 {
		t.Error("does not give way once to a proposer that it suspects")
	}
	p.wait = 0
	if p.stepDown(Ballot{Round: 1}, "a"); p.wait != 0 {
		t.Error("gives way again to a proposer that it suspects")
	}
	p.stage = preparing
	if p.stepDown(Ballot{Round: 3}, "a"); p.wait == 0 || p.stage != idle {
		t.Error("does not back off when a ballot overtakes its own")
	}
}
