package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// short is the timeout of attempts that must fail, long the timeout of attempts that must succeed.
const (
	short = 300 * time.Millisecond
	long  = 4 * time.Minute
)

// within returns a ctx that ends with the test, or after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// introduce introduces all hosts to each other.
func introduce(t testing.TB, hs []*p2p.Host, v elastic.View) {
	t.Helper()
	for _, h := range hs {
		if err := h.Introduce(v.Members); err != nil {
			t.Fatal(err)
		}
	}
}

// event returns the next event of h as text, in which the peer is named by its index in hs.
func event(t testing.TB, hs []*p2p.Host, i int) string {
	t.Helper()
	select {
	case e, ok := <-hs[i].Events():
		if !ok {
			return "end"
		}
		who := -1
		for j, h := range hs {
			if h.ID() == e.Peer {
				who = j
			}
		}
		kind := map[elastic.PeerEventKind]string{elastic.PeerUp: "up", elastic.PeerDown: "down", elastic.PeerMessage: "says "}
		return fmt.Sprintf("%d %s%s", who, kind[e.Kind], e.Data)
	case <-within(t, long).Done():
		t.Fatal("no event came")
		return ""
	}
}

func wantEvents(t testing.TB, hs []*p2p.Host, i int, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := event(t, hs, i); got != w {
			t.Errorf("host %d saw %q, want %q", i, got, w)
		}
	}
}

func send(t testing.TB, hs []*p2p.Host, from, to int, text string) {
	t.Helper()
	if err := hs[from].Send(within(t, long), hs[to].ID(), []byte(text)); err != nil {
		t.Error(err)
	}
}

func TestControl(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			hs, v := hosts(t, 2, cfg)
			introduce(t, hs, v)
			send(t, hs, 0, 1, "one")
			send(t, hs, 0, 1, "two")
			wantEvents(t, hs, 1, "0 up", "0 says one", "0 says two")
			send(t, hs, 1, 0, "")
			wantEvents(t, hs, 0, "1 up", "1 says ")
			big := strings.Repeat("x", elastic.MaxControl)
			send(t, hs, 1, 0, big)
			wantEvents(t, hs, 0, "1 says "+big)
			if err := hs[1].Close(); err != nil {
				t.Error(err)
			}
			wantEvents(t, hs, 0, "1 down")
			wantEvents(t, hs, 1, "end")
		})
	}
}

// Both hosts may connect at the same time. Each message arrives once, in the order of its sender.
func TestControlBothWaysAtOnce(t *testing.T) {
	const senders, each = 3, 30
	hs, v := hosts(t, 2, configs()["tls"])
	introduce(t, hs, v)
	var all sync.WaitGroup
	for from := range 2 {
		for k := range senders {
			all.Go(func() {
				for i := range each {
					send(t, hs, from, 1-from, fmt.Sprintf("%d.%d", k, i))
				}
			})
		}
	}
	for at := range 2 {
		wantEvents(t, hs, at, fmt.Sprintf("%d up", 1-at))
		var next [senders]int
		for range senders * each {
			got, k, i := event(t, hs, at), 0, 0
			if _, err := fmt.Sscanf(got, fmt.Sprintf("%d says %%d.%%d", 1-at), &k, &i); err != nil || i != next[k] {
				t.Fatalf("host %d saw %q, want message %d", at, got, next[k])
			}
			next[k]++
		}
	}
	all.Wait()
}

// A peer that does not know this host yet is reached as soon as the host is introduced to the peer.
func TestControlBeforeIntroduction(t *testing.T) {
	hs, v := hosts(t, 2, configs()["tls"])
	if err := hs[0].Introduce(v.Members); err != nil {
		t.Fatal(err)
	}
	// Host 1 was not introduced to the sender, so it refuses the sender until ctx ends, and no
	// message arrives.
	if err := hs[0].Send(within(t, short), hs[1].ID(), []byte("early")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stranger sent: %v", err)
	}
	done := make(chan struct{})
	go func() {
		send(t, hs, 0, 1, "patient")
		close(done)
	}()
	if err := hs[1].Introduce(v.Members); err != nil {
		t.Fatal(err)
	}
	<-done
	// The stranger's last attempt may have reached host 1 by then. The attempt ended at once, as
	// its ctx had ended. A later attempt delivers the message.
	after := map[string][]string{"": {"0 up"}, "0 down": {"0 up"}, "0 up": {"0 down", "0 says patient"}}
	for seen := ""; seen != "0 says patient"; {
		next := event(t, hs, 1)
		if !slices.Contains(after[seen], next) {
			t.Fatalf("host 1 saw %q after %q", next, seen)
		}
		seen = next
	}
}

func TestControlErrors(t *testing.T) {
	hs, v := hosts(t, 3, configs()["tls"])
	if err := hs[0].Send(within(t, short), hs[2].ID(), nil); err == nil {
		t.Error("sent to a peer that was never added")
	}
	introduce(t, hs[:2], v)
	if err := hs[0].Send(t.Context(), hs[1].ID(), make([]byte, elastic.MaxControl+1)); err == nil {
		t.Error("a message above the limit was sent")
	}
	if err := hs[0].Send(t.Context(), "nobody", nil); err == nil {
		t.Error("sent to an ID that is none")
	}
	if err := hs[0].Introduce([]elastic.Member{{ID: "nobody"}}); err == nil {
		t.Error("an ID that is none was added")
	}
	if err := hs[0].Introduce([]elastic.Member{{ID: hs[1].ID(), Addrs: []string{"here"}}}); err == nil {
		t.Error("an address that is none was added")
	}
	send(t, hs, 0, 1, "hello")
	wantEvents(t, hs, 0, "1 up")
	if err := hs[1].Close(); err != nil {
		t.Error(err)
	}
	wantEvents(t, hs, 0, "1 down")
	// Its port is closed, so Send knows that the peer is gone and fails without a deadline.
	if err := hs[0].Send(within(t, long), hs[1].ID(), nil); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("sent to the dead: %v", err)
	}
	if err := hs[1].Send(within(t, long), hs[0].ID(), nil); err == nil {
		t.Error("a closed host sent")
	}
}

func TestListenErrors(t *testing.T) {
	for name, cfg := range map[string]p2p.Config{
		"job":       {Job: strings.Repeat("x", 256)},
		"multiaddr": {ListenAddrs: []string{"127.0.0.1:0"}},
		"address":   {ListenAddrs: []string{"/ip4/192.0.2.1/tcp/0"}},
	} {
		if h, err := p2p.Listen(t.Context(), cfg); err == nil {
			t.Errorf("%s: accepted, %v", name, h.Close())
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p2p.Listen(ended, p2p.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}

func TestAddrs(t *testing.T) {
	h, err := p2p.Listen(t.Context(), p2p.Config{})
	if err != nil {
		t.Fatal(err)
	}
	addrs := h.Addrs()
	if len(addrs) == 0 || !strings.HasPrefix(addrs[len(addrs)-1], "/ip4/127.0.0.1/") {
		t.Errorf("%v, want loopback last", addrs)
	}
	if err := errors.Join(h.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}
