package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/internal/rendezvous"
	"github.com/elrun/elrun/testing/dns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "0123456789abcdef0123456789abcdef"

// lab is a network for Points. It has a DNS server, and a range of loopback addresses that no other test uses.
type lab struct {
	*dns.Server
	net  string
	need int
}

// newLab returns a lab in which a job starts only if need launchers are present.
func newLab(t *testing.T, need int) *lab {
	t.Helper()
	return &lab{dns.Start(t, "127.0.0.1:0"), fmt.Sprintf("127.%d.%d", 64+rand.IntN(128), rand.IntN(256)), need}
}

// addr returns the address of launcher i.
func (l *lab) addr(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("%s.%d", l.net, i+1)) }

// publish makes the DNS return the addresses of these launchers.
func (l *lab) publish(all ...int) {
	var addrs []netip.Addr
	for _, i := range all {
		addrs = append(addrs, l.addr(i))
	}
	l.Set("m", addrs...)
}

// point starts launcher i.
func (l *lab) point(t *testing.T, i int, key string, say func(string)) *rendezvous.Point {
	t.Helper()
	name, err := rendezvous.ParseName("dns:m@" + l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	p, err := rendezvous.Listen(t.Context(), rendezvous.Config{Name: name, Key: key, Addr: l.addr(i), Host: fmt.Sprint("m-", i), Need: l.need, Patience: time.Hour, Say: say})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Of launchers that seek the job at the same time, the launcher with the lowest name starts the
// job, and gives tickets to the other launchers.
func TestSeek(t *testing.T) {
	l := newLab(t, 3)
	l.publish(0, 1, 2, 3)
	var points []*rendezvous.Point
	for i := range 4 {
		points = append(points, l.point(t, i, key+"\n", nil))
	}
	found := make([]rendezvous.Found, len(points))
	var work sync.WaitGroup
	for i, p := range points {
		work.Go(func() {
			f, err := p.Seek(t.Context())
			if err != nil {
				t.Errorf("launcher %d: %v", i, err)
			}
			found[i] = f
			p.Serve(func(context.Context) (string, error) { return fmt.Sprint("ticket of ", i), nil })
		})
	}
	work.Wait()
	for i, f := range found {
		if (f.Ticket == "") != (i == 0) || f.Finished {
			t.Errorf("launcher %d: %+v", i, f)
		}
	}
}

// seekUntil runs Seek until the reason that it reports contains a text.
func seekUntil(t *testing.T, l *lab, i int, key, text string) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	said := errors.New("said")
	p := l.point(t, i, key, func(s string) {
		if strings.Contains(s, text) {
			cancel(said)
		}
	})
	f, err := p.Seek(ctx)
	if !errors.Is(err, said) {
		t.Errorf("want %q, found %+v, %v", text, f, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// No launcher starts the job while the DNS fails, while an address does not answer, or with a wrong key.
func TestNoStart(t *testing.T) {
	l := newLab(t, 1)
	l.Break(true)
	seekUntil(t, l, 0, key, "DNS lookup of m: server misbehaving")
	l.Break(false)
	seekUntil(t, l, 0, key, "DNS lookup of m: no such host")
	l.publish(0, 1)
	_ = l.point(t, 1, key, nil)
	seekUntil(t, l, 0, strings.ToUpper(key), "another key")
	mute, err := net.Listen("tcp", net.JoinHostPort(l.addr(2).String(), "7473"))
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	l.publish(0, 2)
	seekUntil(t, l, 0, key, "may run the job but does not answer")
}

// A launcher that has ended does not delay the start, because its address refuses connections.
func TestGone(t *testing.T) {
	l := newLab(t, 1)
	l.publish(0, 1)
	f, err := l.point(t, 0, key, nil).Seek(t.Context())
	if err != nil || f != (rendezvous.Found{}) {
		t.Errorf("%+v, %v", f, err)
	}
}

// A newcomer is not in the DNS. Its questions make it known to the other launchers.
func TestVisitors(t *testing.T) {
	l := newLab(t, 2)
	l.publish(0)
	old, fresh := l.point(t, 0, key, nil), l.point(t, 1, key, nil)
	old.Serve(func(context.Context) (string, error) { return "ticket", nil })
	var work sync.WaitGroup
	work.Go(func() {
		if f, err := fresh.Seek(t.Context()); err != nil || f.Ticket != "ticket" {
			t.Errorf("newcomer: %+v, %v", f, err)
		}
	})
	if f, err := old.Seek(t.Context()); err != nil || f != (rendezvous.Found{}) {
		t.Errorf("%+v, %v", f, err)
	}
	work.Wait()
}

// A launcher that starts after the end of the job gets the answer that the job has finished. Finish
// returns when the stage of all other launchers is finished.
func TestFinish(t *testing.T) {
	l := newLab(t, 1)
	l.publish(0, 1)
	first := l.point(t, 0, key, nil)
	if _, err := first.Seek(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Finish(t.Context()) // the other launcher has not started yet
	late := l.point(t, 1, key, nil)
	f, err := late.Seek(t.Context())
	if err != nil || !f.Finished || !late.Finished(t.Context()) {
		t.Errorf("%+v, %v", f, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	first.Finish(ctx) // with an ended context Finish returns at once
}

// A launcher asks again for a ticket that is not available yet.
func TestTicketLater(t *testing.T) {
	l := newLab(t, 1)
	l.publish(0, 1)
	first := l.point(t, 0, key, nil)
	if _, err := first.Seek(t.Context()); err != nil {
		t.Fatal(err)
	}
	tries := 0
	late := l.point(t, 1, key, func(text string) {
		switch {
		case strings.Contains(text, "not joined the job yet"):
			first.Serve(func(context.Context) (string, error) {
				if tries++; tries == 1 {
					return "", errors.New("no peer yet")
				}
				return "ticket", nil
			})
		case !strings.Contains(text, "no peer yet"):
			t.Errorf("printed %q", text)
		}
	})
	f, err := late.Seek(t.Context())
	if err != nil || f != (rendezvous.Found{Ticket: "ticket", Host: "m-0"}) {
		t.Errorf("%+v, %v", f, err)
	}
}

// A connection without the key ends in the handshake, or at the handshake's time limit.
func TestStrangers(t *testing.T) {
	l := newLab(t, 1)
	l.publish(0)
	p := l.point(t, 0, key, nil)
	for range 128 {
		conn, err := net.Dial("tcp", net.JoinHostPort(l.addr(0).String(), "7473"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	if f, err := p.Seek(t.Context()); err != nil || f != (rendezvous.Found{}) {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestListenErrors(t *testing.T) {
	name, err := rendezvous.ParseName("dns:m")
	if err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]rendezvous.Config{
		"a key of 5 characters":   {Name: name, Key: " short\n"},
		"cannot assign requested": {Name: name, Key: key, Addr: netip.MustParseAddr("192.0.2.1")},
	} {
		if p, err := rendezvous.Listen(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v, %v", want, p, err)
		}
	}
}
