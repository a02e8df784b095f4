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

// A member gives way the longer, the longer ballots have overtaken each other. Messages of a single ballot, ballots after the death
// of their last proposer, and ballots after a long silence add nothing.
func TestContested(t *testing.T) {
	base := aloneIn(t, "d", "a", "b", "c", "d")
	l := &localState{membership: base}
	p := &proposer{membership: base, local: l}
	longest := p.cfg.Retry << 6
	for _, s := range []struct {
		what  string
		after uint64 // ticks after the message before
		b     Ballot
		from  ID
		want  uint64
	}{
		{"the first ballot", 1000, Ballot{Round: 1}, "a", 0},
		{"its second message", 9, Ballot{Round: 1}, "a", 0},
		{"a ballot that overtakes it", 7, Ballot{Round: 1, Rank: 1}, "b", 7},
		{"its second message", 20, Ballot{Round: 1, Rank: 1}, "b", 27},
		{"a third ballot", 30, Ballot{Round: 2}, "a", 57},
		{"a fourth ballot, late", longest, Ballot{Round: 3, Rank: 2}, "c", longest},
		{"a ballot after the death of c", 10, Ballot{Round: 4}, "a", 0},
		{"a ballot that overtakes it", 5, Ballot{Round: 5, Rank: 1}, "b", 5},
		{"a ballot after a long silence", 4*longest + 1, Ballot{Round: 6}, "a", 0},
	} {
		p.tick += s.after
		if got := p.contested(s.b, s.from); got != s.want {
			t.Errorf("%s: contested for %d ticks, want %d", s.what, got, s.want)
		}
		if s.from == "c" {
			l.suspect(Suspect{Peer: "c"})
		}
	}
}
