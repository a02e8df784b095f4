package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// signer is the signer of a test job, and policyOf a policy that accepts only its claims.
func signer(b byte) ticket.Signer { return ticket.SignerOf([]byte{b}) }

func policyOf(s ticket.Signer) AdmissionPolicy {
	return func(_ context.Context, id elastic.ID, r ticket.Request) ticket.Answer { return s.Admit(string(id), r) }
}

// credential returns the credential of a host for such a policy.
func (h *Host) credential(s ticket.Signer) ticket.Credential {
	return s.Credential("test", ticket.Identity{}, string(h.id))
}

// listenNear starts a host on loopback.
func listenNear(t testing.TB, policy AdmissionPolicy) (*Host, elastic.Member) {
	t.Helper()
	h, err := Listen(t.Context(), Config{Job: "test", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}, Admission: policy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, elastic.Member{ID: h.ID(), Addrs: h.Addrs()}
}

// loiter connects a stranger that sends nothing.
func loiter(t testing.TB, h *Host, m elastic.Member) {
	t.Helper()
	if err := h.Introduce([]elastic.Member{m}); err != nil {
		t.Fatal(err)
	}
	id, err := idOf(string(m.ID))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.conns.swarm.DialPeer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

// Many strangers use only maxStrangers connections, and keep out neither members nor a newcomer
// with a ticket. The oldest strangers are disconnected. Each stranger may open one stream, for its
// proof.
func TestCrowd(t *testing.T) {
	member, m := listenNear(t, policyOf(signer(1)))
	var crowd []*Host
	left := make(chan struct{})
	for i := range maxStrangers + 5 {
		h, _ := listenNear(t, nil)
		if i == 0 {
			n := &network.NotifyBundle{DisconnectedF: func(network.Network, network.Conn) { close(left) }}
			h.conns.swarm.Notify(n)
			defer h.conns.swarm.StopNotify(n)
		}
		loiter(t, h, m)
		crowd = append(crowd, h)
	}
	member.admission.strangers.mu.Lock()
	conns := len(member.admission.strangers.conns)
	member.admission.strangers.mu.Unlock()
	if conns > maxStrangers {
		t.Errorf("%d strangers", conns)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	select {
	case <-left:
	case <-ctx.Done():
		t.Error("the oldest stranger stays")
	}
	newcomer, _ := listenNear(t, nil)
	if err := newcomer.Prove(ctx, m, newcomer.credential(signer(1))); err != nil {
		t.Errorf("a newcomer: %v", err)
	}
	second, f := listenNear(t, nil)
	if err := errors.Join(member.Introduce([]elastic.Member{f}), second.Introduce([]elastic.Member{m}),
		second.Send(ctx, m.ID, []byte("hello"))); err != nil {
		t.Errorf("a member: %v", err)
	}
	id, err := idOf(string(m.ID))
	if err != nil {
		t.Fatal(err)
	}
	last := crowd[len(crowd)-1]
	for _, p := range []protocol.ID{controlProtocol, dataProtocol, bulkProtocol, proveProtocol} {
		s, err := last.conns.host.NewStream(ctx, id, p)
		if err == nil {
			t.Errorf("a stranger opened a stream for %s", p)
			_ = s.Reset()
		}
	}
}

// A newcomer of another version of the protocol learns the version of the member.
func TestVersionOfAMember(t *testing.T) {
	_, m := listenNear(t, policyOf(signer(1)))
	h, _ := listenNear(t, nil)
	loiter(t, h, m)
	id, err := idOf(string(m.ID))
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.dialer.open(t.Context(), id, provePrefix+"1234")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	if err := propose(s.Stream, provePrefix+"1234", nil); err == nil || !strings.Contains(err.Error(), string("answered \""+proveProtocol+"\"")) {
		t.Errorf("got %v", err)
	}
}

// away is a connection from a given address.
type away struct {
	network.Conn
	addr string
}

func (a away) RemoteMultiaddr() multiaddr.Multiaddr { return multiaddr.StringCast(a.addr) }

// A stranger that does not prove its right to join is disconnected after strangerTime.
func TestStrangerTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(chan string)
		l := &strangers{expel: func(c network.Conn) { out <- c.(away).addr }}
		defer l.close()
		const addr = "/ip4/192.0.2.1/tcp/1"
		c := away{addr: addr}
		begun := time.Now()
		l.add(c)
		if gone := <-out; gone != addr || time.Since(begun) != strangerTime {
			t.Errorf("%s had to go after %v", gone, time.Since(begun))
		}
		if len(l.conns) > 0 || l.mayOpenStream(c) {
			t.Errorf("%d conns; one that had to go may open a stream: %t", len(l.conns), l.mayOpenStream(c))
		}
	})
}

// One address that is not loopback may have only maxPerIP connections of strangers.
func TestStrangerPerAddress(t *testing.T) {
	out := make(chan string, 100)
	l := &strangers{expel: func(c network.Conn) { out <- c.(away).addr }}
	defer l.close()
	for i := range maxPerIP + 3 {
		l.add(away{addr: fmt.Sprintf("/ip4/192.0.2.1/tcp/%d", i+1)})
	}
	l.add(away{addr: "/ip4/192.0.2.2/tcp/1"})
	var gone []string
	for range 3 {
		gone = append(gone, <-out)
	}
	slices.Sort(gone)
	if want := []string{"/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/tcp/2", "/ip4/192.0.2.1/tcp/3"}; !slices.Equal(gone, want) {
		t.Errorf("%v had to go, want %v", gone, want)
	}
	if len(l.conns) != maxPerIP+1 {
		t.Errorf("%d conns", len(l.conns))
	}
}

// Loopback is dialled first, all else a little later. Without loopback all are dialled at once.
func TestNearFirst(t *testing.T) {
	far, near := multiaddr.StringCast("/ip4/192.0.2.1/tcp/1"), multiaddr.StringCast("/ip4/127.0.0.1/tcp/1")
	for _, d := range nearFirst([]multiaddr.Multiaddr{far, near}) {
		if (d.Delay == 0) != d.Addr.Equal(near) || d.Delay > 250*time.Millisecond {
			t.Errorf("%v after %v", d.Addr, d.Delay)
		}
	}
	if d := nearFirst([]multiaddr.Multiaddr{far}); d[0].Delay != 0 {
		t.Errorf("%v after %v", d[0].Addr, d[0].Delay)
	}
}
