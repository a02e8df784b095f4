package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// key is the signer of a test job, and policyOf a policy that accepts only its claims.
func key(b byte) ticket.Signer { return ticket.SignerOf([]byte{b}) }

func policyOf(s ticket.Signer) p2p.AdmissionPolicy {
	return func(_ context.Context, id elastic.ID, r ticket.Request) ticket.Answer { return s.Admit(string(id), r) }
}

// by returns the credential that s gives to the host h; policyOf(s) accepts it.
func by(h *p2p.Host, s ticket.Signer) ticket.Credential {
	return s.Credential("test", ticket.Identity{}, string(h.ID()))
}

// host starts one host, with an admission policy unless policy is nil.
func host(t testing.TB, cfg p2p.Config, policy p2p.AdmissionPolicy) (*p2p.Host, elastic.Member) {
	t.Helper()
	cfg.Admission = policy
	hs, v := hosts(t, 1, cfg)
	return hs[0], v.Members[0]
}

// A newcomer with a ticket is admitted by every member, and with a policy of its own it admits the
// next newcomer.
func TestProve(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			first, m0 := host(t, cfg, policyOf(key(1)))
			second, m1 := host(t, cfg, policyOf(key(1)))
			newcomer, m2 := host(t, cfg, nil)
			next, _ := host(t, cfg, nil)
			hs := []*p2p.Host{first, second, newcomer, next}
			if err := newcomer.Prove(within(t, long), m0, by(newcomer, key(1))); err != nil {
				t.Fatal(err)
			}
			send(t, hs, 2, 0, "hello")
			wantEvents(t, hs, 0, "2 up", "2 says hello")
			send(t, hs, 0, 2, "welcome")
			wantEvents(t, hs, 2, "0 up", "0 says welcome")
			newcomer.SetAdmission(policyOf(key(1)))
			if err := newcomer.Prove(within(t, long), m1, by(newcomer, key(1))); err != nil {
				t.Fatal(err)
			}
			send(t, hs, 2, 1, "me too")
			wantEvents(t, hs, 1, "2 up", "2 says me too")
			wantEvents(t, hs, 2, "1 up") // in its own time
			if err := next.Prove(within(t, long), m2, by(next, key(1))); err != nil {
				t.Fatal(err)
			}
			send(t, hs, 3, 2, "thanks")
			wantEvents(t, hs, 2, "3 up", "3 says thanks")
		})
	}
}

// Invalid tickets are refused with the reason, and admit nobody. A claim that was made for another
// newcomer is invalid.
func TestProveRefused(t *testing.T) {
	t.Parallel() // it waits
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			member, m := host(t, cfg, func(_ context.Context, id elastic.ID, r ticket.Request) ticket.Answer {
				for i, s := range []ticket.Signer{key(1), key(2), key(3)} {
					if a := s.Admit(string(id), r); a.Decision == ticket.In {
						a.Decision = []ticket.Decision{ticket.Expired, ticket.UsedUp, ticket.Revoked}[i]
						return a
					}
				}
				return ticket.Answer{Decision: ticket.Unknown}
			})
			newcomer, _ := host(t, cfg, nil)
			other, _ := host(t, cfg, nil)
			for what, test := range map[string]struct {
				shown ticket.Credential
				want  error
				words string
			}{
				"expired":   {by(newcomer, key(1)), ticket.ErrExpired, "clock says"},
				"used up":   {by(newcomer, key(2)), ticket.ErrUsedUp, "ask for another"},
				"revoked":   {by(newcomer, key(3)), ticket.ErrRevoked, "revoked"},
				"minted":    {by(newcomer, key(9)), ticket.ErrUnknown, "made up"},
				"another's": {by(other, key(1)), ticket.ErrUnknown, "made up"},
				"nothing":   {ticket.Credential{}, ticket.ErrUnknown, "made up"},
			} {
				if err := newcomer.Prove(within(t, long), m, test.shown); !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.words) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := newcomer.Introduce([]elastic.Member{m}); err != nil { // as if it had been let in
				t.Fatal(err)
			}
			if err := newcomer.Send(within(t, short), member.ID(), []byte("x")); err == nil {
				t.Error("a stranger sent a message")
			}
		})
	}
}

// A host that is no member cannot impersonate a member, in three cases: the host does not know the
// ticket; the host admits everybody; another host listens at the dialled address.
func TestProveToImpostor(t *testing.T) {
	cfg := configs()["tls"]
	_, m := host(t, cfg, policyOf(key(1)))
	other, o := host(t, cfg, func(context.Context, elastic.ID, ticket.Request) ticket.Answer {
		return ticket.Answer{Decision: ticket.In, Signer: key(2).ID}
	})
	newcomer, _ := host(t, cfg, nil)
	if err := newcomer.Prove(within(t, long), o, by(newcomer, key(1))); !errors.Is(err, p2p.ErrImpostor) {
		t.Errorf("an impostor: %v", err)
	}
	// A newcomer also rejects an impostor that sends first.
	if err := other.Introduce([]elastic.Member{{ID: newcomer.ID(), Addrs: newcomer.Addrs()}}); err != nil {
		t.Fatal(err)
	}
	if err := other.Send(within(t, short), newcomer.ID(), []byte("trust me")); err == nil {
		t.Error("an impostor sent a message")
	}
	// The member's ID with another host's address.
	if err := newcomer.Prove(within(t, short), elastic.Member{ID: m.ID, Addrs: o.Addrs}, by(newcomer, key(1))); err == nil {
		t.Error("proved to somebody else")
	}
	select {
	case e := <-newcomer.Events():
		t.Errorf("event %v", e)
	default:
	}
}

// A newcomer that cannot reach a member proves its right to join over the connection that the
// member makes with it. Afterwards each sends to the other.
func TestProveCalledBack(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			member, m := host(t, cfg, policyOf(key(1)))
			newcomer, n := host(t, cfg, policyOf(key(1)))
			m.Addrs = nil
			proved := make(chan error, 1)
			go func() { proved <- newcomer.Prove(within(t, long), m, by(newcomer, key(1))) }()
			if err := member.Introduce([]elastic.Member{n}); err != nil { // as after a view that another member has sent
				t.Fatal(err)
			}
			hs := []*p2p.Host{member, newcomer}
			send(t, hs, 0, 1, "come")
			if err := <-proved; err != nil {
				t.Fatal(err)
			}
			wantEvents(t, hs, 1, "0 up", "0 says come")
			send(t, hs, 1, 0, "thanks")
			wantEvents(t, hs, 0, "1 up", "1 says thanks")
		})
	}
}

// Without an admission policy no stranger may connect.
func TestProveWithoutDoor(t *testing.T) {
	_, m := host(t, configs()["tls"], nil)
	newcomer, _ := host(t, configs()["tls"], nil)
	if err := newcomer.Prove(within(t, short), m, by(newcomer, key(1))); err == nil {
		t.Error("got in")
	}
	if err := newcomer.Prove(within(t, short), elastic.Member{ID: "nobody"}, by(newcomer, key(1))); err == nil {
		t.Error("proved to nobody")
	}
}

// Prove ends at once when the member's process ends meanwhile.
func TestProveToTheDead(t *testing.T) {
	dead, m := host(t, configs()["tls"], policyOf(key(1)))
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	newcomer, _ := host(t, configs()["tls"], nil)
	if err := newcomer.Prove(within(t, long), m, by(newcomer, key(1))); !errors.Is(err, elastic.ErrGone) {
		t.Errorf("got %v", err)
	}
}

// Identify returns the ID of the host that listens at an address, and fails for anything else.
func TestIdentify(t *testing.T) {
	_, m := host(t, configs()["tls"], policyOf(key(1)))
	asker, _ := host(t, configs()["tls"], nil)
	got, err := asker.Identify(within(t, long), m.Addrs[0])
	if err != nil || got.ID != m.ID || len(got.Addrs) != 1 || got.Addrs[0] != m.Addrs[0] {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = asker.Identify(within(t, long), m.Addrs[0]+"/p2p/"+string(m.ID)); err != nil || got.ID != m.ID {
		t.Errorf("with its ID: %+v, %v", got, err)
	}
	if _, err := asker.Identify(within(t, long), "/ip4/127.0.0.1/tcp/1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = c.Write([]byte("220 ready\r\n"))
			_ = c.Close()
		}
	}()
	if _, err := asker.Identify(within(t, long), fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", l.Addr().(*net.TCPAddr).Port)); !errors.Is(err, p2p.ErrStranger) {
		t.Errorf("something else: %v", err)
	}
	if _, err := asker.Identify(within(t, long), "garbage"); err == nil {
		t.Error("no address")
	}
}

// Forget ends all connections and prevents new ones, from either side.
func TestForget(t *testing.T) {
	t.Parallel() // it waits
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			cfg.Admission = policyOf(key(1))
			hs, v := hosts(t, 2, cfg)
			introduce(t, hs, v)
			send(t, hs, 0, 1, "hello")
			wantEvents(t, hs, 1, "0 up", "0 says hello")
			wantEvents(t, hs, 0, "1 up")
			ts := connect(t, hs, v)
			hs[0].Forget(hs[1].ID())
			wantEvents(t, hs, 0, "1 down")
			wantEvents(t, hs, 1, "0 down")
			introduce(t, hs, v) // without effect
			if err := hs[0].Send(within(t, long), hs[1].ID(), nil); err == nil {
				t.Error("sent to the forgotten")
			}
			if err := hs[1].Send(within(t, short), hs[0].ID(), nil); err == nil {
				t.Error("the forgotten sent")
			}
			if err := hs[1].Prove(within(t, short), v.Members[0], by(hs[1], key(1))); err == nil {
				t.Error("the forgotten proved itself")
			}
			next := elastic.View{Epoch: 2, Parent: v.Hash(), Members: v.Members}
			if _, err := hs[0].Connect(within(t, long), next, 0); err == nil || !strings.Contains(err.Error(), "put out") {
				t.Errorf("connected with the forgotten: %v", err)
			}
			if _, err := hs[0].Request(within(t, long), hs[1].ID(), nil); err == nil {
				t.Error("asked the forgotten")
			}
			hs[0].Forget("nobody")
			closeAll(t, ts)
		})
	}
}
