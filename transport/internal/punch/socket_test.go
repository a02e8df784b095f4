package punch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newWorld returns the public network, with one host that is the member.
func newWorld(seed uint64, loss float64) (public *segment, member *peer) {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), loss: loss, delay: 10 * time.Millisecond}
	public = &segment{w: w, nodes: make(map[netip.Addr]func(packet))}
	return public, newPeer(public, "198.51.100.1")
}

// peer is a socket from which a goroutine reads, as QUIC does.
type peer struct {
	*Socket
	conn *conn
	got  chan string // packets for QUIC
}

func newPeer(on *segment, ip string) *peer {
	c := newConn(on, ip)
	p := &peer{Socket: New(c), conn: c, got: make(chan string, 64)}
	go func() {
		b := make([]byte, 1500)
		for {
			n, _, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			p.got <- string(b[:n])
		}
	}()
	return p
}

// behind says where a host is: on the public network or behind routers.
type behind struct {
	name             string
	mapping, filters int  // of the host's own router
	open, double     bool // without a router; with a second router, of the strictest cone
}

func kinds() []behind {
	return []behind{
		{name: "open", open: true},
		{name: "full cone", mapping: independent, filters: independent},
		{name: "restricted", mapping: independent, filters: byAddr},
		{name: "port restricted", mapping: independent, filters: byPort},
		{name: "symmetric", mapping: byPort, filters: byPort},
		{name: "symmetric by address", mapping: byAddr, filters: byAddr},
		{name: "double", mapping: independent, filters: byAddr, double: true},
		{name: "double symmetric", mapping: byPort, filters: byPort, double: true},
	}
}

// host adds a host there. Private addresses are the same behind all routers.
func (b behind) host(public *segment, n int) *peer {
	ip := fmt.Sprintf("203.0.113.%d", n)
	if b.open {
		return newPeer(public, ip)
	}
	if b.double {
		public = newRouter(public, ip, independent, byPort).inner
		ip = "100.64.0.2"
	}
	return newPeer(newRouter(public, ip, b.mapping, b.filters).inner, "192.168.1.2")
}

// strict returns the strictest filter between the host and the public network.
func (b behind) strict() int {
	if b.double {
		return byPort
	}
	return b.filters
}

// possible reports whether two hosts can reach each other according to RFC 4787. One host must have
// a port that the other host can know, and must accept packets from a port of the other host that
// it cannot know.
func possible(a, b behind) bool {
	known := func(k behind) bool { return k.open || k.mapping == independent }
	letsIn := func(k behind) bool { return k.open || k.strict() != byPort }
	switch {
	case known(a) && known(b):
		return true
	case known(a):
		return letsIn(a)
	case known(b):
		return letsIn(b)
	}
	return false
}

// observe returns the external address of a peer as a member sees it.
func observe(t *testing.T, p, member *peer) netip.AddrPort {
	t.Helper()
	c := NewCredential()
	defer member.Serve(c)()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	at, err := p.Observe(ctx, c, member.conn.at)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// meet lets two peers search for each other. It returns the address at which each has found the other.
func meet(t *testing.T, a, b, member *peer, account Account) (at [2]netip.AddrPort, errs [2]error, leave func()) {
	t.Helper()
	candidates := [2][]netip.AddrPort{{a.conn.at, observe(t, a, member)}, {b.conn.at, observe(t, b, member)}}
	c := NewCredential()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	ms := [2]*Search{
		a.StartChecks(CheckList{Credential: c, Candidates: candidates[1], Initiator: true, Account: account}),
		b.StartChecks(CheckList{Credential: c, Candidates: candidates[0], Account: account}),
	}
	done := make(chan struct{})
	for i, m := range ms {
		go func() {
			at[i], errs[i] = m.Found(ctx)
			done <- struct{}{}
		}()
	}
	<-done
	<-done
	return at, errs, func() {
		for i, m := range ms {
			m.Leave(func(x netip.AddrPort) bool { return x == at[i] })
		}
	}
}

// Two hosts behind any two kinds of routers find each other where that is possible, although packets are lost. Packets to the
// addresses that they have found arrive.
func TestMatrix(t *testing.T) {
	for i, ka := range kinds() {
		for _, kb := range kinds()[i:] {
			t.Run(ka.name+" and "+kb.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					public, member := newWorld(uint64(i), 0.2)
					a, b := ka.host(public, 1), kb.host(public, 2)
					at, errs, leave := meet(t, a, b, member, nil)
					leave()
					public.w.loseNothing()
					if possible(ka, kb) {
						checkFound(t, a, b, at, errs)
					} else if !errors.Is(errs[0], ErrNoAnswer) || !errors.Is(errs[1], ErrNoAnswer) {
						t.Errorf("found %v, errors %v", at, errs)
					}
					for _, p := range []*peer{a, b, member} {
						_ = p.conn.Close()
					}
				})
			})
		}
	}
}

// checkFound checks that a packet arrives in each direction.
func checkFound(t *testing.T, a, b *peer, at [2]netip.AddrPort, errs [2]error) {
	t.Helper()
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	for i, pair := range [][2]*peer{{a, b}, {b, a}} {
		if _, err := pair[0].WriteTo([]byte{0x40, byte(i)}, net.UDPAddrFromAddrPort(at[i])); err != nil {
			t.Fatal(err)
		}
		if got := <-pair[1].got; got != string([]byte{0x40, byte(i)}) {
			t.Errorf("got %q", got)
		}
	}
}

// Two hosts behind one router connect within their network. A host does not mistake itself for another host with the same private
// address.
func TestSameAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		public, member := newWorld(1, 0)
		port := behind{mapping: independent, filters: byPort}
		home := newRouter(public, "203.0.113.9", independent, byPort)
		a, b, c := newPeer(home.inner, "192.168.1.2"), newPeer(home.inner, "192.168.1.3"), port.host(public, 3)
		at, errs, leave := meet(t, a, b, member, nil)
		leave()
		checkFound(t, a, b, at, errs)
		if at[0] != b.conn.at || at[1] != a.conn.at {
			t.Errorf("behind one router: %v", at)
		}
		at, errs, leave = meet(t, a, c, member, nil)
		leave()
		checkFound(t, a, c, at, errs)
		for _, p := range []*peer{a, b, c, member} {
			_ = p.conn.Close()
		}
	})
}

// A peer without a credential gets no answer, and its packets do not reach QUIC. QUIC does not get
// packets that the account refuses, or from addresses that were dropped.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		public, member := newWorld(1, 0)
		a, b, stranger := newPeer(public, "203.0.113.1"), newPeer(public, "203.0.113.2"), newPeer(public, "203.0.113.3")
		known := NewCredential()
		end := a.Serve(known)
		for what, c := range map[string]Credential{"another": NewCredential(), "another secret": {User: known.User}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if at, err := stranger.Observe(ctx, c, a.conn.at); !errors.Is(err, ErrNoAnswer) {
				t.Errorf("with %s credential: %v, %v", what, at, err)
			}
			cancel()
		}
		end()
		var allowed atomic.Int64
		allowed.Store(100)
		at, _, leave := meet(t, a, b, member, func(read, _ int) bool { return allowed.Add(-int64(read)) >= 0 })
		send := func(from *peer, text string) {
			if _, err := from.WriteTo([]byte(text), net.UDPAddrFromAddrPort(a.conn.at)); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second) // in virtual time: the packet has arrived by then
		}
		leave()
		send(stranger, "@stranger")
		send(b, "@b")
		send(b, "@"+string(make([]byte, 100)))
		allowed.Store(1000)
		a.Drop(at[0])
		send(b, "@dropped")
		if got := <-a.got; got != "@b" || len(a.got) != 0 {
			t.Errorf("got %q and %d more", got, len(a.got))
		}
		for _, p := range []*peer{a, b, stranger, member} {
			_ = p.conn.Close()
		}
	})
}
