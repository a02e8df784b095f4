package elastic

import (
	"fmt"
	"slices"
	"testing"

	"github.com/elrun/elrun/elastic/member"
)

// A peer of another launcher is admitted when all members have acknowledged; members that have not
// are told again. A peer of this launcher need not wait.
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
