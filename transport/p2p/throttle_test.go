package p2p

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/elastic"
)

// waited returns the duration of f.
func waited(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

// forTokens returns the time in which an outsider gets n tokens if that many parts share the rate.
func forTokens(n, parts int) time.Duration {
	return time.Duration(float64(n*parts) / outsiderRate * float64(time.Second))
}

// near compares times that have rounding errors.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < -time.Microsecond || d > time.Microsecond {
		t.Errorf("%s: waited for %v, want %v", what, got, want)
	}
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle(nil)
		near(t, "before the first view", waited(func() { l.spend("a", 10*outsiderTokens) }), 0)
		l.setInsiders(nil)
		near(t, "what a full bucket holds", waited(func() { l.spend("a", outsiderTokens) }), 0)
		near(t, "more than that", waited(func() { l.spend("a", 1000) }), forTokens(1000, 1))
		l.pay("b", outsiderTokens+1000)
		near(t, "one of two", waited(func() { l.spend("a", 1000) }), forTokens(1000, 2))
		near(t, "the other, meanwhile", waited(func() { l.wait("b", nil) }), 0)
		near(t, "one without a debt", waited(func() { l.spend("c", outsiderTokens-1) }), 0)
		l.pay("a", 1000)
		l.pay("a", -1000)
		near(t, "one that has earned what it owed", waited(func() { l.wait("a", nil) }), 0)
		l.pay("a", -2*outsiderTokens)
		near(t, "more than full", waited(func() { l.spend("a", outsiderTokens+1000) }), forTokens(1000, 3))
		<-time.After(forTokens(outsiderTokens, 3)) // virtual
		l.pay("d", 1)
		if len(l.buckets) != 1 {
			t.Errorf("%d buckets are kept", len(l.buckets))
		}
	})
}

// An outsider that becomes a member stops waiting, and a member that becomes an outsider waits.
func TestThrottleOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle(nil)
		l.setInsiders(nil)
		l.pay("m", 2*outsiderTokens)
		done := make(chan struct{})
		go func() {
			defer close(done)
			near(t, "a new member", waited(func() { l.wait("m", nil) }), time.Millisecond)
		}()
		<-time.After(time.Millisecond) // virtual
		l.setInsiders([]peer.ID{"m"})
		<-done
		near(t, "a member", waited(func() { l.spend("m", 10*outsiderTokens) }), 0)
		l.setInsiders(nil)
		near(t, "a former member", waited(func() { l.spend("m", outsiderTokens+1000) }), forTokens(1000, 1))
	})
}

// Outsiders beyond maxThrottled share one bucket.
func TestThrottleOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		l := newThrottle(stop)
		l.setInsiders(nil)
		for i := range maxThrottled {
			l.pay(peer.ID(fmt.Sprint(i)), outsiderTokens)
		}
		near(t, "the first without", waited(func() { l.spend("a", outsiderTokens) }), 0)
		near(t, "the second", waited(func() { l.spend("b", 1) }), forTokens(1, maxThrottled+1))
		if len(l.buckets) != maxThrottled+1 {
			t.Errorf("%d buckets", len(l.buckets))
		}
		l.pay("b", outsiderTokens)
		l.setInsiders([]peer.ID{"m"})
		near(t, "a member", waited(func() { l.wait("m", nil) }), 0)
		l.pay("1", outsiderTokens)
		close(stop)
		near(t, "a closed host", waited(func() { l.wait("1", nil) }), 0)
	})
}

// pipe is a connection in memory.
type pipe struct{ net.Conn }

func (pipe) LocalMultiaddr() multiaddr.Multiaddr  { return nil }
func (pipe) RemoteMultiaddr() multiaddr.Multiaddr { return nil }

// The host reads from an outsider that sends as fast as it can only as many bytes as the tokens of
// the outsider allow.
func TestMeteredConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span, size = 10 * time.Second, 100
		l := newThrottle(nil)
		l.setInsiders(nil)
		raw, far := net.Pipe()
		c := newMeteredConn(pipe{raw}, l)
		go func() {
			b := make([]byte, size)
			for {
				if _, err := far.Write(b); err != nil {
					return
				}
			}
		}()
		b := make([]byte, 1<<10)
		near(t, "the handshake", waited(func() {
			for range outsiderTokens / size {
				_, _ = c.Read(b)
			}
		}), 0)
		c.identify("a")
		reads := 0
		for begun := time.Now(); time.Since(begun) < span; reads++ {
			_, _ = c.Read(b)
		}
		want := (outsiderTokens + int(span.Seconds()*outsiderRate)) / (size + readTokens)
		if reads < want-2 || reads > want+2 {
			t.Errorf("%d reads, want %d", reads, want)
		}
		l.pay("a", outsiderTokens/2)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		left := l.left("a")
		if n, err := c.Write(make([]byte, 100*answerBytes)); err != nil || l.left("a") != left+100 {
			t.Errorf("%d bytes and %v tokens: %v", n, l.left("a")-left, err)
		}
		l.pay("a", outsiderTokens)
		time.AfterFunc(time.Millisecond, func() { _ = c.Close() })
		near(t, "a connection that is closed", waited(func() {
			if _, err := c.Read(b); err != io.ErrClosedPipe {
				t.Error(err)
			}
		}), time.Millisecond)
	})
}

// ownView starts n hosts of a job with an admission policy: the first is in a view of its own, and the others
// have proven their right to join it. The buckets are not refilled.
func ownView(t *testing.T, n int, cfg Config) (all []*Host) {
	t.Helper()
	cfg.Job, cfg.Path, cfg.Admission = "test", "p2p", policyOf(signer(1))
	for range n {
		h, err := Listen(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, h)
	}
	h := all[0]
	first := elastic.Member{ID: h.ID(), Addrs: h.Addrs()}
	for _, other := range all[1:] {
		if err := other.Prove(t.Context(), first, other.credential(signer(1))); err != nil {
			t.Fatal(err)
		}
	}
	h.throttle.rate = 1e-3
	s, err := h.Connect(t.Context(), elastic.View{Epoch: 1, Members: []elastic.Member{first}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return all
}

// tellHost sends a control message.
func tellHost(t *testing.T, from, to *Host, text string) {
	t.Helper()
	if err := from.Send(t.Context(), to.ID(), []byte(text)); err != nil {
		t.Error(err)
	}
}

// message returns the content of the next control message.
func message(t *testing.T, h *Host) string {
	t.Helper()
	for {
		select {
		case e := <-h.Events():
			if e.Kind == elastic.PeerMessage {
				return string(e.Data)
			}
		case <-t.Context().Done():
			t.Fatal("no message")
		}
	}
}

// askHost makes a request and reads the answer.
func askHost(ctx context.Context, t *testing.T, from, to *Host) {
	t.Helper()
	answer, err := from.Request(ctx, to.ID(), nil)
	if err == nil {
		_, err = io.ReadAll(answer)
	}
	if err != nil {
		t.Error(err)
		return
	}
	_ = answer.Close()
}

// left returns the tokens that an outsider has left.
func (t *throttle) left(id peer.ID) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bucketLocked(id, time.Now()).tokens
}

// Outsiders pay for the bytes on a connection, whichever side has dialled it.
func TestOutsiderPays(t *testing.T) {
	for name, back := range map[string]bool{"came in": false, "dialled": true} {
		t.Run(name, func(t *testing.T) {
			all := ownView(t, 2, Config{ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
			h, other := all[0], all[1]
			if back {
				other.conns.hangUp(other.conns.swarm.ConnsToPeer(h.conns.gate.self)[0])
				if err := h.Introduce([]elastic.Member{{ID: other.ID(), Addrs: other.Addrs()}}); err != nil {
					t.Fatal(err)
				}
				tellHost(t, h, other, "hello")
				message(t, other)
			}
			const size = outsiderTokens / 4
			before := h.throttle.left(other.conns.gate.self)
			tellHost(t, other, h, string(make([]byte, size)))
			message(t, h)
			if used := before - h.throttle.left(other.conns.gate.self); used < size {
				t.Errorf("%d bytes took %v tokens", size, used)
			}
		})
	}
}

// The host reads nothing from an outsider in debt until the outsider is a member. It goes on reading
// from other peers.
func TestOutsiderInDebt(t *testing.T) {
	all := ownView(t, 3, Config{ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
	h, other, second := all[0], all[1], all[2]
	asked := make(chan elastic.ID, 100)
	h.Serve(func(_ context.Context, from elastic.ID, _ []byte, _ io.Writer) error {
		asked <- from
		return nil
	})
	tellHost(t, other, h, "one")
	message(t, h)
	h.throttle.pay(other.conns.gate.self, 2*outsiderTokens)
	tellHost(t, other, h, "two") // heard if the host waits for it already
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asking.Go(func() { askHost(ctx, t, other, h) })
	tellHost(t, other, h, "three")
	for range 20 {
		askHost(ctx, t, second, h)
		if from := <-asked; from != second.ID() {
			t.Errorf("a request of %s was answered", from)
		}
	}
	tellHost(t, second, h, "four")
	for heard := message(t, h); heard != "four"; heard = message(t, h) {
		if heard != "two" {
			t.Fatalf("heard %q", heard)
		}
	}
	h.throttle.setInsiders([]peer.ID{other.conns.gate.self})
	heard := message(t, h)
	if heard == "two" {
		heard = message(t, h)
	}
	if heard != "three" {
		t.Errorf("heard %q", heard)
	}
	if from := <-asked; from != other.ID() {
		t.Errorf("a request of %s was answered", from)
	}
	asking.Wait()
}

// A relay that carries connections of a view is no outsider.
func TestRelayIsInside(t *testing.T) {
	var all []*Host
	v := elastic.View{Epoch: 1}
	for range 3 {
		h, err := Listen(t.Context(), Config{Job: "test", Path: "p2p", Relay: "members", loopback: true, ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, h)
		v.Members = append(v.Members, elastic.Member{ID: h.ID(), Addrs: []string{"/ip4/127.0.0.1/tcp/1"}}) // where nobody is
	}
	relay, pair := all[0], all[1:]
	v.Members[0].Addrs = relay.Addrs()
	for _, h := range all {
		if err := h.Introduce(v.Members); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range pair {
		tellHost(t, h, relay, "hello")
	}
	v.Members = v.Members[1:]
	var connecting sync.WaitGroup
	for rank, h := range pair {
		connecting.Go(func() {
			s, err := h.Connect(t.Context(), v, rank)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = s.Close() })
		})
	}
	connecting.Wait()
	for _, h := range pair {
		h.throttle.pay(relay.conns.gate.self, 2*outsiderTokens)
		if left, _ := h.throttle.debt(relay.conns.gate.self); left > 0 {
			t.Error("the relay is in debt")
		}
	}
}
