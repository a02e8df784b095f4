package elastic

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// A member accepts an offer that matches the job, and refuses or postpones any other offer with a
// reason.
func TestConsider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := []Setting{{Name: "batch", Value: "4"}}
		good := offer{Member: Member{ID: "new"}, State: true, Settings: settings}
		for name, c := range map[string]struct {
			change func(s *requestServer, o *offer)
			want   string // of Refused or Wait; empty if accepted
		}{
			"good":         {func(*requestServer, *offer) {}, ""},
			"other name":   {func(_ *requestServer, o *offer) { o.Member.ID = "else" }, "calls itself else"},
			"not a member": {func(s *requestServer, _ *offer) { s.identity.driver.status.current.phase = outside }, "not a member"},
			"left":         {func(s *requestServer, _ *offer) { s.identity.driver.status.current.phase = left }, "not a member"},
			"early":        {func(s *requestServer, _ *offer) { s.registration.begun = false }, "not begun"},
			"no state":     {func(_ *requestServer, o *offer) { o.State = false }, "registered a state"},
			"settings":     {func(_ *requestServer, o *offer) { o.Settings = nil }, "batch is 4"},
			"not let in": {func(s *requestServer, _ *offer) {
				s.cfg.Entry = func(ID) (Entry, error) { return Entry{}, errors.New("no ticket") }
			}, "no ticket"},
			"description": {func(_ *requestServer, o *offer) { o.Member.Host = strings.Repeat("h", 600) }, "608 bytes"},
		} {
			s := &requestServer{cfg: new(Config), identity: &identity{driver: testDriver(t, 3, 0)},
				registration: &registration{terms: terms{state: blank{}, settings: settings, begun: true}}}
			o := good
			c.change(s, &o)
			r := s.consider("new", o)
			said := r.Refused + r.Wait
			if !strings.Contains(said, c.want) || (said == "") != (c.want == "") || (len(r.Members) == 3) != (c.want == "") {
				t.Errorf("%s: got %+v", name, r)
			}
			if r.Outside != (c.want == "not a member") {
				t.Errorf("%s: outside is %v", name, r.Outside)
			}
		}
	})
}

// The reply to an offer has the present addresses of the members (Endpoint.Complete).
func TestConsiderCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDriver(t, 3, 0)
		d.ep.Complete = func(members []Member) []Member {
			out := slices.Clone(members)
			out[1].Addrs = []string{"late"}
			return out
		}
		s := &requestServer{cfg: new(Config), identity: &identity{driver: d}, registration: &registration{terms: terms{state: blank{}, begun: true}}}
		r := s.consider("new", offer{Member: Member{ID: "new"}, State: true})
		if len(r.Members) != 3 || !slices.Equal(r.Members[1].Addrs, []string{"late"}) {
			t.Errorf("%+v", r)
		}
	})
}

// The reply to a newcomer that knows the present view does not repeat the members.
func TestConsiderSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &requestServer{cfg: new(Config), identity: &identity{driver: testDriver(t, 3, 0)}, registration: &registration{terms: terms{state: blank{}, begun: true}}}
		o := offer{Member: Member{ID: "new"}, State: true}
		first := s.consider("new", o)
		if first.Same || len(first.Members) != 3 || len(first.Version) == 0 {
			t.Fatalf("%+v", first)
		}
		o.Version = first.Version
		if again := s.consider("new", o); !again.Same || len(again.Members) > 0 {
			t.Errorf("the same view: %+v", again)
		}
		o.Version = []byte("another view")
		if other := s.consider("new", o); other.Same || len(other.Members) != 3 {
			t.Errorf("another view: %+v", other)
		}
	})
}

// blank is a State whose methods must not be called.
type blank struct{ State }

// Malformed requests end with an error, not with an answer.
func TestAnswerToNonsense(t *testing.T) {
	s := &requestServer{cfg: new(Config), identity: new(identity), registration: new(registration)}
	for _, request := range []string{"", "x", "o", "o{", "t", "t{}"} {
		var b bytes.Buffer
		if err := s.answer(t.Context(), "from", []byte(request), &b); err == nil || b.Len() > 0 {
			t.Errorf("%q: %v, %d bytes", request, err, b.Len())
		}
	}
}
