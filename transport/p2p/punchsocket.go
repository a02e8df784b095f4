package p2p

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/transport/internal/punch"
)

const (
	// maxObservers is the number of members that are asked for this host's external address. Two
	// answers show whether the router takes another port for each destination. The third is a
	// reserve.
	maxObservers = 3
	// observeTime is how long an observer may take to answer.
	observeTime = 2 * time.Second
	// seenTime is how long the answers of observers are valid. Routers remove the mapping of an
	// idle socket after half a minute or later.
	seenTime = 15 * time.Second
)

// errNoIPv4 means that this host has no IPv4 address to punch from. Only IPv4 routers translate
// addresses.
var errNoIPv4 = errors.New("hole punching needs an IPv4 address, and this host listens at none: add one to --listen")

// punchSocket is the only UDP socket of a host for hole punching; libp2p's QUIC reads from it.
// Checks and QUIC must share a socket: a router maps a pair of address and port, so a path that was
// found by checks works only for the socket that has sent the checks.
//
// gathering is also the lock of last and lastAt. It is held while members are asked, so that
// concurrent attempts ask them once.
type punchSocket struct {
	*punch.Socket
	p       *puncher
	manager *quicreuse.ConnManager // libp2p's owner of the socket
	port    uint16

	gathering sync.Mutex // held by the goroutine that asks members
	last      seen       // cached result of gather, and its time
	lastAt    time.Time
}

// seen has the candidates of a host: the addresses at which others may reach its UDP socket.
type seen struct {
	addrs  []netip.AddrPort
	varies bool // members see different ports (symmetric NAT)
	nobody bool // no member has answered
}

// explain adds to err the known problem of this host's router, which the user can solve: a
// symmetric router can be replaced or configured to keep ports, and a firewall can be configured to
// let UDP pass.
func (s seen) explain(err error) error {
	switch {
	case s.varies:
		return fmt.Errorf("%w (the router of this host uses another external port for each destination: set the router to keep one port)", err)
	case s.nobody:
		return fmt.Errorf("%w (no member answers by UDP, so this host does not know its external address: let firewalls pass UDP)", err)
	}
	return err
}

// open returns the socket. The first call opens it. After an error the next call tries again.
func (p *puncher) open() (*punchSocket, error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	if p.socket != nil {
		return p.socket, nil
	}
	s, err := p.make()
	if err != nil {
		return nil, fmt.Errorf("open a UDP socket: %w", err)
	}
	p.socket = s
	return s, nil
}

// make opens the socket and registers it with libp2p for listening and dialling. The socket is IPv4
// only, and bound to the address at which this host listens by TCP: with several addresses the
// system could otherwise send from an address that observers have not seen.
func (p *puncher) make() (*punchSocket, error) {
	ip, port, ok := p.place()
	if !ok {
		return nil, errNoIPv4
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, port)))
	// Only some firewalls need the fixed port: another port works behind most routers.
	if err != nil { // the port is in use, by another peer of this host perhaps
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	}
	if err != nil {
		return nil, err
	}
	at := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s := &punchSocket{Socket: punch.New(conn), p: p, port: at.Port()}
	if err := s.listen(at); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// listen adds a QUIC transport to libp2p that uses the socket. libp2p would open a socket of its
// own; the override returns this socket instead, once.
func (p *punchSocket) listen(at netip.AddrPort) error {
	var reset, token [32]byte
	_, _ = rand.Read(reset[:]) // never fails
	_, _ = rand.Read(token[:])
	given := false
	manager, err := quicreuse.NewConnManager(reset, token, quicreuse.OverrideListenUDP(func(string, *net.UDPAddr) (net.PacketConn, error) {
		// A second socket would have another external port than the checks have found.
		if given {
			return nil, errors.New("the only UDP socket is in use already")
		}
		given = true
		return p.Socket, nil
	}))
	if err != nil {
		return err
	}
	p.manager = manager
	t, err := libp2pquic.NewTransport(p.p.key, manager, nil, p.p.gate, p.p.limits)
	if err == nil {
		err = p.p.swarm.AddTransport(t)
	}
	var a multiaddr.Multiaddr
	if err == nil {
		a, err = quicAddr(at)
	}
	if err == nil {
		err = p.p.swarm.AddListenAddr(a)
	}
	if err != nil {
		return errors.Join(err, manager.Close())
	}
	return nil
}

// place returns the address for the UDP socket: the address and port at which TCP listens, as
// firewalls may let that port pass. If the port is in use the caller takes another port.
func (p *puncher) place() (ip netip.Addr, port uint16, ok bool) {
	for _, a := range p.swarm.ListenAddresses() {
		addr, err := manet.ToNetAddr(withoutZone(a))
		tcp, isTCP := addr.(*net.TCPAddr)
		if err != nil || !isTCP {
			continue
		}
		at := tcp.AddrPort()
		// Hole punching is for routers that translate addresses; routers translate only IPv4
		// addresses.
		if at.Addr().Unmap().Is4() && (p.loopback || !at.Addr().IsLoopback()) {
			return at.Addr().Unmap(), at.Port(), true
		}
	}
	return ip, 0, false
}

// gather returns the candidates of this host for a peer: its own addresses (host candidates of
// ICE), and its external addresses as members see them (server-reflexive candidates). The result is
// cached for seenTime. Own addresses are of use if both hosts are behind the same router.
func (p *punchSocket) gather(ctx context.Context, from peer.ID) seen {
	p.gathering.Lock()
	defer p.gathering.Unlock()
	// gathering is held while members are asked: a concurrent attempt waits for the lock, and then
	// uses the cached result.
	if time.Since(p.lastAt) < seenTime {
		return p.last
	}
	var all seen
	for _, a := range p.p.host.Addrs() {
		if at := udpOf(a); at.IsValid() && (p.p.loopback || !at.Addr().IsLoopback()) {
			all.addrs = append(all.addrs, at)
		}
	}
	external := p.observe(ctx, from)
	// Members that see the same address and another port reveal a router with address-dependent
	// mapping (symmetric, RFC 4787): the port that the peer will see cannot be predicted. external is
	// sorted, so that the ports of one address are neighbours.
	for i, at := range external {
		all.varies = all.varies || i > 0 && at.Addr() == external[i-1].Addr() && at != external[i-1]
		if !slices.Contains(all.addrs, at) {
			all.addrs = append(all.addrs, at)
		}
	}
	all.nobody = len(external) == 0
	if !all.nobody { // a result without an observer is not cached, so that the next attempt asks again
		p.last, p.lastAt = all, time.Now()
	}
	return all
}

// observe asks some members, but not except, for the external address of the socket. It returns the
// addresses sorted. Members that do not answer within observeTime are left out. It asks several
// members, because the answers also show whether the router takes another port for each
// destination.
func (p *punchSocket) observe(ctx context.Context, except peer.ID) (external []netip.AddrPort) {
	ctx, cancel := context.WithTimeout(ctx, p.p.slowness*observeTime)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex
	// The peer of the attempt is left out: this host reaches it only through a relay, so it cannot
	// observe.
	for _, c := range p.p.relays.candidates(except, maxObservers) {
		asking.Go(func() {
			at, err := p.observeBy(ctx, c)
			if err != nil {
				return // another member may answer
			}
			mu.Lock()
			defer mu.Unlock()
			external = append(external, at)
		})
	}
	asking.Wait()
	slices.SortFunc(external, netip.AddrPort.Compare)
	return external
}

// observeBy asks the member at the other end of a connection: first, over that connection, to
// accept requests with a fresh credential, and then by UDP for the address that it sees.
func (p *punchSocket) observeBy(ctx context.Context, c network.Conn) (netip.AddrPort, error) {
	ask := punchAsk{Credential: punch.NewCredential()}
	talk, answer, err := p.p.askOnce(ctx, c.RemotePeer(), ask)
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer talk.Close()
	// The answer has the observer's UDP port; the connection shows the observer's IP address.
	ip, ok := hostOf(c.RemoteMultiaddr())
	if !ok || !ip.Is4() {
		return netip.AddrPort{}, errNoIPv4
	}
	return p.Observe(ctx, ask.Credential, netip.AddrPortFrom(ip, answer.Port))
}
