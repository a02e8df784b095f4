package p2p_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

func secret(b byte) []byte { return bytes.Repeat([]byte{b}, ticket.KeySize) }

// host starts one host, with a secret unless that is nil.
func host(t testing.TB, cfg p2p.Config, secret []byte) (*p2p.Host, elastic.Member) {
	t.Helper()
	cfg.Secret = secret
	hs, v := hosts(t, 1, cfg)
	return hs[0], v.Members[0]
}

// tick returns a proof by a ticket that is good until the given time from now.
func tick(t testing.TB, secret []byte, d time.Duration) ticket.Proof {
	t.Helper()
	k, err := ticket.New(secret, "test", time.Now().Add(d), []ticket.Contact{{ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	return k.Proof()
}

// A newcomer with a ticket gets in and learns the secret; then members that know it by
// the secret only let it in, and it lets in the next.
func TestProve(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			first, m0 := host(t, cfg, secret(1))
			second, m1 := host(t, cfg, secret(1))
			newcomer, m2 := host(t, cfg, nil)
			next, _ := host(t, cfg, nil)
			hs := []*p2p.Host{first, second, newcomer, next}
			got, err := newcomer.Prove(within(t, long), m0, tick(t, secret(1), time.Hour))
			if err != nil || !bytes.Equal(got, secret(1)) {
				t.Fatalf("learned %x, %v", got, err)
			}
			send(t, hs, 2, 0, "hello")
			wantEvents(t, hs, 0, "2 up", "2 says hello")
			send(t, hs, 0, 2, "welcome")
			wantEvents(t, hs, 2, "0 up", "0 says welcome")
			if err := newcomer.SetSecret(got); err != nil {
				t.Fatal(err)
			}
			if _, err := newcomer.Prove(within(t, long), m1, ticket.BySecret(got)); err != nil {
				t.Fatal(err)
			}
			send(t, hs, 2, 1, "me too")
			wantEvents(t, hs, 1, "2 up", "2 says me too")
			wantEvents(t, hs, 2, "1 up") // in its own time
			if _, err := next.Prove(within(t, long), m2, tick(t, secret(1), time.Hour)); err != nil {
				t.Fatal(err)
			}
			send(t, hs, 3, 2, "thanks")
			wantEvents(t, hs, 2, "3 up", "3 says thanks")
		})
	}
}

// Tickets that are no good are refused with words that say why, and let nobody in.
func TestProveRefused(t *testing.T) {
	t.Parallel() // it waits
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			member, m := host(t, cfg, secret(1))
			newcomer, _ := host(t, cfg, nil)
			for what, test := range map[string]struct {
				proof ticket.Proof
				want  error
				words string
			}{
				"expired":      {tick(t, secret(1), -time.Hour), ticket.ErrExpired, "clock says"},
				"other secret": {tick(t, secret(2), time.Hour), ticket.ErrWrong, "wrong ticket"},
				"no secret":    {ticket.BySecret(secret(2)), ticket.ErrWrong, "wrong ticket"},
			} {
				got, err := newcomer.Prove(within(t, long), m, test.proof)
				if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.words) || got != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := newcomer.Send(within(t, short), member.ID(), []byte("x")); err == nil {
				t.Error("a stranger sent a message")
			}
		})
	}
}

// A host that is no member cannot make a newcomer believe that it is one: it has another
// secret, or the one that was dialled is somebody else.
func TestProveToImpostor(t *testing.T) {
	cfg := configs()["tls"]
	_, m := host(t, cfg, secret(1))
	other, o := host(t, cfg, secret(2))
	newcomer, _ := host(t, cfg, nil)
	if _, err := newcomer.Prove(within(t, long), o, tick(t, secret(1), time.Hour)); !errors.Is(err, ticket.ErrWrong) {
		t.Errorf("another job's member: %v", err)
	}
	// It is not believed either when it speaks first.
	if err := other.Introduce([]elastic.Member{{ID: newcomer.ID(), Addrs: newcomer.Addrs()}}); err != nil {
		t.Fatal(err)
	}
	if err := other.Send(within(t, short), newcomer.ID(), []byte("trust me")); err == nil {
		t.Error("an impostor sent a message")
	}
	// Another's address under a member's ID.
	if _, err := newcomer.Prove(within(t, short), elastic.Member{ID: m.ID, Addrs: o.Addrs}, tick(t, secret(1), time.Hour)); err == nil {
		t.Error("proved to somebody else")
	}
	select {
	case e := <-newcomer.Events():
		t.Errorf("event %v", e)
	default:
	}
}

// Without a secret there is no lobby, as before.
func TestProveWithoutSecret(t *testing.T) {
	_, m := host(t, configs()["tls"], nil)
	newcomer, _ := host(t, configs()["tls"], nil)
	if _, err := newcomer.Prove(within(t, short), m, ticket.BySecret(secret(1))); err == nil {
		t.Error("got in")
	}
	if err := newcomer.SetSecret(secret(1)[1:]); err == nil {
		t.Error("a short secret was accepted")
	}
	if _, err := newcomer.Prove(within(t, short), elastic.Member{ID: "nobody"}, ticket.BySecret(secret(1))); err == nil {
		t.Error("proved to nobody")
	}
}

// The end of a member's process while a newcomer asks is not waited out.
func TestProveToTheDead(t *testing.T) {
	dead, m := host(t, configs()["tls"], secret(1))
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	newcomer, _ := host(t, configs()["tls"], nil)
	if _, err := newcomer.Prove(within(t, long), m, ticket.BySecret(secret(1))); !errors.Is(err, elastic.ErrGone) {
		t.Errorf("got %v", err)
	}
}

// Forget ends what there is and lets nothing new begin, from either side.
func TestForget(t *testing.T) {
	t.Parallel() // it waits
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			cfg.Secret = secret(1)
			hs, v := hosts(t, 2, cfg)
			introduce(t, hs, v)
			send(t, hs, 0, 1, "hello")
			wantEvents(t, hs, 1, "0 up", "0 says hello")
			wantEvents(t, hs, 0, "1 up")
			ts := connect(t, hs, v)
			hs[0].Forget(hs[1].ID())
			wantEvents(t, hs, 0, "1 down")
			wantEvents(t, hs, 1, "0 down")
			introduce(t, hs, v) // of no effect
			if err := hs[0].Send(within(t, long), hs[1].ID(), nil); err == nil {
				t.Error("sent to the forgotten")
			}
			if err := hs[1].Send(within(t, short), hs[0].ID(), nil); err == nil {
				t.Error("the forgotten sent")
			}
			if _, err := hs[1].Prove(within(t, short), v.Members[0], ticket.BySecret(secret(1))); err == nil {
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
