package inpeer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
)

func TestTicketContacts(t *testing.T) {
	var members []elastic.Member
	for i := range 12 {
		members = append(members, elastic.Member{ID: elastic.ID(fmt.Sprint(i)), Host: fmt.Sprint("host", i/4)})
	}
	var ids []string
	for _, c := range ticketContacts(members, members[1]) {
		ids = append(ids, string(c.ID))
	}
	// The ticket names the peer itself, one member of each other host, and the first of the
	// remaining members.
	if got := strings.Join(ids, " "); got != "1 4 8 0 2" {
		t.Errorf("got %s", got)
	}
}

func TestIssueBeforeJoining(t *testing.T) {
	p := &peer{a: &Link{}, id: newFakeNet(nil).identity(nil), admission: newAdmission("")}
	if k, err := p.issue(t.Context(), wire.Request{Local: true}); err == nil {
		t.Errorf("got %+v", k)
	}
	_ = p.id.Close()
}

// A ticket has the addresses of the best kind of each member.
func TestTicketAddrs(t *testing.T) {
	members := []elastic.Member{
		{ID: "a", Addrs: []string{"/ip4/192.0.2.1/tcp/1", "/ip6/2001:db8::1/tcp/1", "/ip6/fe80::1/tcp/1", "/ip4/127.0.0.1/tcp/1"}},
		{ID: "b", Addrs: []string{"/ip6/fe80::2/tcp/1", "/ip4/127.0.0.1/tcp/1"}},
		{ID: "c", Addrs: []string{"/ip4/192.0.2.1/tcp/1/p2p/x/p2p-circuit", "/ip4/127.0.0.1/tcp/1"}},
		{ID: "d", Addrs: []string{"/ip4/127.0.0.1/tcp/1"}},
		{ID: "e", Addrs: []string{"/ip4/192.0.2.1/tcp/2", "/ip4/192.0.2.2/tcp/2", "/ip4/192.0.2.3/tcp/2"}},
	}
	want := "/ip4/192.0.2.1/tcp/1 /ip6/2001:db8::1/tcp/1 /ip6/fe80::2/tcp/1 /ip4/192.0.2.1/tcp/1/p2p/x/p2p-circuit/p2p/c " +
		"/ip4/127.0.0.1/tcp/1 /ip4/192.0.2.1/tcp/2 /ip4/192.0.2.2/tcp/2"
	if got := strings.Join(ticketAddrs(members), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestChoosePeer(t *testing.T) {
	v := elastic.View{Barred: []elastic.ID{"12D3KooWbarredpeer"}, Members: []elastic.Member{
		{ID: "12D3KooWaaaaaaaa", Index: 0}, {ID: "12D3KooWbbbbbbbb", Index: 1}, {ID: "12D3KooWcccccccc", Index: 1}}}
	for name, want := range map[string]string{
		"0": "aaaaaaaa", "bbbbbbbb": "bbbbbbbb", "12D3KooWcccccccc": "cccccccc",
		"1": "several peers", "2": "no peer 2", "": "no peer", "rredpeer": "kicked already",
	} {
		m, err := choosePeer(v, name)
		if got := m.ID.Short() + fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%q: %s", name, got)
		}
	}
}
