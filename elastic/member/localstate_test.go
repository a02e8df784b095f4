package member

import (
	"slices"
	"testing"
)

// aloneIn returns the membership for a part that is tested without a Machine. The view is the first
// view of the members ids; self is one of them.
func aloneIn(t *testing.T, self ID, ids ...ID) *membership {
	v, err := First(membersOf(ids...))
	if err != nil {
		t.Fatal(err)
	}
	return &membership{cfg: Config{Self: Member{ID: self}}.withDefaults(), phase: inside, view: v, rank: v.Rank(self), history: history{base: v}}
}

// A repeated event does not count as new. Suspect ends an admission, and Trust ends a suspicion.
func TestLocalStateTellsNewFromKnown(t *testing.T) {
	l := &localState{membership: aloneIn(t, "a", "a", "b", "c")}
	request := Request{Member{ID: "new"}, 1}
	for i, c := range []struct {
		got, want bool
	}{
		{l.suspect(Suspect{Peer: "a"}), false}, // itself
		{l.suspect(Suspect{Peer: "b"}), true},
		{l.suspect(Suspect{Peer: "b", Gone: true}), false},
		{l.reachable("b"), false},
		{l.gone.has("b"), true},
		{l.unsuspect("b"), true},
		{l.unsuspect("b"), false},
		{l.gone.has("b"), false},
		{l.admit(request), true},
		{l.admit(request), false},
		{l.suspect(Suspect{Peer: "new"}), true},
		{len(l.joins) == 0, true},
		{l.admit(Request{Member{ID: "c"}, 1}), false}, // a member
		{l.askRenewal(2), false},                      // another view's session
		{l.askRenewal(1), true},
		{l.askRenewal(1), false},
	} {
		if c.got != c.want {
			t.Errorf("step %d: %v, want %v", i, c.got, c.want)
		}
	}
}

// Reports have the number 0 until a report in this view has content. From then on reports are
// numbered even if they are empty, so that an empty report replaces the report before.
func TestReportsAreNumberedFromTheFirstContent(t *testing.T) {
	l := &localState{membership: aloneIn(t, "a", "a", "b", "c"), version: 7}
	if r := l.report(); r.Seq != 0 || !r.empty() {
		t.Errorf("without knowledge: %+v", r)
	}
	l.suspect(Suspect{Peer: "c"})
	l.suspect(Suspect{Peer: "b"})
	l.suspect(Suspect{Peer: "new"}) // in no view yet
	l.dead.add("c")
	if r := l.report(); r.Seq != 7 || !slices.Equal(r.Unreachable, []ID{"b"}) || !slices.Equal(r.Dead, []ID{"c"}) {
		t.Errorf("with knowledge: %+v", r)
	}
	l.unsuspect("b")
	l.dead.remove("c")
	l.unsuspect("c")
	if r := l.report(); r.Seq != 7 || !r.empty() {
		t.Errorf("empty again: %+v", r)
	}
	v, d := decided(t, l.view, Change{Join: membersOf("new")})
	l.history.push(d, v)
	l.enter(v, &l.history)
	l.view = v
	if r := l.report(); r.Seq != 7 || !slices.Equal(r.Unreachable, []ID{"new"}) {
		t.Errorf("in a view with the suspect: %+v", r)
	}
}

// Of a member's reports the report with the highest number counts, in whatever order the reports
// arrive.
func TestLaterReportCounts(t *testing.T) {
	p := newPeerReports(3, 0, 0)
	for i, c := range []struct {
		seq  uint64
		lost ID
		want bool
	}{{0, "", false}, {4, "b", true}, {3, "c", false}, {4, "c", false}, {5, "c", true}} {
		if got := p.take(1, &Report{Seq: c.seq, Unreachable: []ID{c.lost}}); got != c.want {
			t.Errorf("report %d: %v, want %v", i, got, c.want)
		}
	}
	if p.unreachable("b") || !p.unreachable("c") {
		t.Error("an earlier report counts")
	}
}

// I11: the newcomers get their votes when all of them have been present for long enough.
func TestPromotion(t *testing.T) {
	v, _ := decided(t, aloneIn(t, "a", "a").view, Change{Join: membersOf("b", "c")})
	p := newPeerReports(3, 0, 0)
	p.present(1, 5)
	if p.promotable(v, 1000, 20) {
		t.Error("although the last newcomer was never heard of")
	}
	p.present(2, 30)
	p.present(1, 40) // known already
	for tick, want := range map[uint64]bool{49: false, 50: true} {
		if got := p.promotable(v, tick, 20); got != want {
			t.Errorf("in tick %d: %v", tick, got)
		}
	}
}
