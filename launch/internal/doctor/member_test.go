package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// listenMember returns a host that listens as a member that admits newcomers.
func listenMember(t *testing.T) *p2p.Host {
	t.Helper()
	h, err := p2p.Listen(t.Context(), p2p.Config{Job: "m", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	h.SetAdmission(func(context.Context, elastic.ID, ticket.Request) ticket.Answer {
		return ticket.Answer{Decision: ticket.NotYet}
	})
	return h
}

// levels returns the levels of checks, in order.
func levels(checks []spec.Check) string {
	var out []string
	for _, c := range checks {
		out = append(out, string(c.Level))
	}
	return strings.Join(out, " ")
}

// All addresses of a ticket are tested. One working address is enough for its member.
func TestDoctorMember(t *testing.T) {
	h := listenMember(t)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := gone.Addr().String()
	_ = gone.Close()
	_, port, _ := net.SplitHostPort(closed)
	nobody := "/ip4/127.0.0.1/tcp/" + port
	made := func(valid time.Duration, addrs ...string) string {
		k, err := ticket.New("m", ticket.Identity{}, [ticket.SeedSize]byte{1}, time.Now().Add(valid), addrs)
		if err != nil {
			t.Fatal(err)
		}
		return k.String()
	}
	good := h.Addrs()[0]
	for name, c := range map[string]struct{ target, levels, says string }{
		"a ticket":         {made(time.Hour, good), "ok ok", "for job m, good for "},
		"one way of two":   {made(time.Hour, nobody, good), "ok warn ok", "another address of the job works"},
		"nobody there":     {made(time.Hour, nobody), "ok fail", "nothing listens there"},
		"an address":       {strings.NewReplacer("/ip4/", "", "/tcp/", ":").Replace(h.Addrs()[0]), "ok", "with peer " + h.ID().Short()},
		"a closed address": {closed, "fail", "nothing listens there"},
	} {
		checks, err := Member(t.Context(), c.target)
		if err != nil || levels(checks) != c.levels || !strings.Contains(fmt.Sprint(checks), c.says) {
			t.Errorf("%s: %v, %v", name, checks, err)
		}
	}
	if _, err := Member(t.Context(), "nonsense"); !errors.Is(err, spec.ErrOptions) {
		t.Errorf("nonsense: %v", err)
	}
}

func TestCheckExpiry(t *testing.T) {
	now := time.Unix(1e9, 0)
	if c := checkExpiry("m", now.Add(time.Minute), now); c.Level != spec.OK || c.Found != "for job m, good for 1m0s" {
		t.Errorf("%v", c)
	}
	if c := checkExpiry("m", now, now.Add(time.Minute)); c.Level != spec.Fail || !strings.Contains(c.String(), "expired 1m0s ago") || c.Advice == "" {
		t.Errorf("%v", c)
	}
}

// Each cause of a failed connection has its remedy.
func TestCheckGreeting(t *testing.T) {
	in := p2p.Greeting{Connect: time.Millisecond, ID: elastic.ID("x"), Handshake: time.Millisecond}
	for want, c := range map[string]struct {
		g   p2p.Greeting
		err error
	}{
		"is the name right":        {p2p.Greeting{}, &net.DNSError{}},
		"nothing listens there":    {p2p.Greeting{}, syscall.ECONNREFUSED},
		"private address":          {p2p.Greeting{}, syscall.ENETUNREACH},
		"let TCP through":          {p2p.Greeting{}, errors.New("no answer within 5s")},
		"doctor on the other host": {p2p.Greeting{}, errors.New("strange")},
		"name the port of a peer":  {p2p.Greeting{Connect: 1}, errors.New("no libp2p")},
		"open the job":             {in, errors.New("closed")},
	} {
		if got := checkGreeting("h:1", "", c.g, c.err); got.Level == spec.OK || !strings.Contains(got.Advice, want) {
			t.Errorf("%v, want advice %q", got, want)
		}
	}
}
