package elastic

import (
	"fmt"
	"slices"
	"testing"

	"github.com/elrun/elrun/elastic/member"
)

// A peer of another launcher is admitted when all members have acknowledged the announcement, which
// is repeated to members that have not. A peer of this launcher is admitted at once.
func TestForeignJoin(t *testing.T) {
	r := &roster{self: Member{ID: "a", Launcher: "here"}, view: View{Members: []Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}}}
	request := func(id ID, launcher string) member.Request {
		m, err := toMember(Member{ID: id, Launcher: launcher})
		if err != nil {
			t.Fatal(err)
		}
		return member.Request{Member: m}
	}
	var did []string
	s := singleLauncher{on: true, announce: func(id ID) { did = append(did, "tell "+string(id)) }, step: func(e member.Event) {
		switch e := e.(type) {
		case member.Admit:
			did = append(did, "admit "+string(e.Request.Member.ID))
		case member.Sole:
			did = append(did, fmt.Sprint("sole ", e.On))
		}
	}}
	for _, c := range []struct {
		do   func()
		want []string
	}{
		{func() { s.admit(r, request("near", "here")) }, []string{"admit near"}},
		{func() { s.admit(r, request("far", "there")) }, []string{"sole false", "tell b", "tell c"}},
		{func() { s.acknowledged(r, "b") }, nil},
		{func() { s.again(r) }, []string{"tell c"}},
		{func() { s.acknowledged(r, "c") }, []string{"admit far"}},
		{func() { s.again(r) }, nil},
		{func() { s.admit(r, request("second", "there")) }, []string{"admit second"}},
	} {
		did = nil
		if c.do(); !slices.Equal(did, c.want) {
			t.Errorf("got %q, want %q", did, c.want)
		}
	}
	if s.on || !s.over || !s.settled {
		t.Errorf("on %v, over %v, settled %v", s.on, s.over, s.settled)
	}
}

// If another member has admitted a peer of another launcher meanwhile, the waiting peers are
// admitted without further acknowledgements.
func TestForeignJoinElsewhere(t *testing.T) {
	r := &roster{self: Member{ID: "a", Launcher: "here"}, view: View{Members: []Member{{ID: "a"}, {ID: "b"}}}}
	m, err := toMember(Member{ID: "far", Launcher: "there"})
	if err != nil {
		t.Fatal(err)
	}
	var admitted []member.ID
	s := singleLauncher{announce: func(ID) {}, step: func(e member.Event) {
		if e, is := e.(member.Admit); is {
			admitted = append(admitted, e.Request.Member.ID)
		}
	}}
	s.admit(r, member.Request{Member: m})
	s.again(r)
	if len(admitted) > 0 {
		t.Fatalf("admitted %v before b has acknowledged", admitted)
	}
	s.settled = true
	s.again(r)
	s.again(r)
	if !slices.Equal(admitted, []member.ID{"far"}) {
		t.Errorf("admitted %v", admitted)
	}
}
