package launch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/ticket"
)

func TestServiceErrors(t *testing.T) {
	var s ctl.Services
	s.Scale = func(context.Context, spec.Host) (string, error) { return "", errNoLauncher }
	s.Ticket = func(context.Context, wire.Request) (spec.Ticket, error) {
		return spec.Ticket{}, errors.New("no member")
	}
	s.Revoke = func(context.Context, string) (string, error) { return "", errors.New("no such ticket") }
	s.Kick = func(context.Context, string) (string, error) { return "", errors.New("no such peer") }
	for line, want := range map[string]string{
		`{"request":"scale","peers":2}`:         "has ended",
		`{"request":"ticket","valid_ms":10000}`: "no member",
		`{"request":"revoke","ticket":"x"}`:     "no such ticket",
		`{"request":"kick","peer":"x"}`:         "no such peer",
	} {
		if r := s.Answer(t.Context(), []byte(line)); !strings.Contains(r.Error, want) {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

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

func TestCheckTicket(t *testing.T) {
	expiry := time.Unix(5000, 0)
	issue := func(job string) string {
		k, err := ticket.New(job, ticket.Identity{}, [ticket.SeedSize]byte{1}, expiry, []string{"/ip4/192.0.2.1/tcp/7"})
		if err != nil {
			t.Fatal(err)
		}
		return k.String()
	}
	if job, err := checkTicket(issue("job-1"), expiry); job != "job-1" || err != nil {
		t.Errorf("got %q, %v", job, err)
	}
	if _, err := checkTicket(issue("job-1"), expiry.Add(time.Second)); !errors.Is(err, ticket.ErrExpired) {
		t.Errorf("late: %v", err)
	}
	for _, bad := range []string{"", "garbage", issue("a/b")} {
		if _, err := checkTicket(bad, expiry); !errors.Is(err, ticket.ErrFormat) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	late := spec.Options{Join: true, Ticket: issue("job-1")} // after its expiry
	if err := find(t.Context(), &late); !errors.Is(err, ticket.ErrExpired) || errors.Is(err, spec.ErrOptions) {
		t.Errorf("find: %v", err)
	}
}

func TestFindByName(t *testing.T) {
	job := testJob(t)
	serve(t, job, 0, ctl.Services{Ticket: func(_ context.Context, r wire.Request) (spec.Ticket, error) {
		return spec.Ticket{Text: fmt.Sprint(time.Duration(r.ValidMS)*time.Millisecond, r.Local)}, nil
	}})
	o := spec.Options{Join: true, Job: job}
	if err := find(t.Context(), &o); err != nil || o.Ticket != "87600h0m0s true" {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestIssueBeforeJoining(t *testing.T) {
	p := &peer{a: &agent{}, id: newFakeNet(nil).identity(nil), admission: newAdmission("")}
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
