package punch

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// segment is a network. It delivers packets to its own addresses, and passes all others up through its router.
type segment struct {
	w     *world
	up    *router // nil for the public network
	nodes map[netip.Addr]func(packet)
}

// packet is a UDP datagram.
type packet struct {
	from, to netip.AddrPort
	data     []byte
}

// world is the state that all segments share.
type world struct {
	mu     sync.Mutex
	random *rand.Rand
	loss   float64
	delay  time.Duration
}

// loseNothing stops the loss of packets.
func (w *world) loseNothing() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loss = 0
}

// send delivers a packet after a delay, or loses it.
func (s *segment) send(p packet) {
	s.w.mu.Lock()
	lost, delay := s.w.random.Float64() < s.w.loss, s.w.delay+time.Duration(s.w.random.Int64N(int64(s.w.delay)))
	s.w.mu.Unlock()
	if !lost {
		time.AfterFunc(delay, func() { s.deliver(p) })
	}
}

func (s *segment) deliver(p packet) {
	s.w.mu.Lock()
	take := s.nodes[p.to.Addr()]
	if take == nil && s.up != nil {
		take = s.up.outbound
	}
	s.w.mu.Unlock()
	if take != nil {
		take(p)
	}
}

// These are the kinds of mapping and filtering of a router (RFC 4787, sections 4.1 and 5).
const (
	independent = iota
	byAddr
	byPort
)

// router translates addresses between two segments.
type router struct {
	wan              netip.Addr
	outer, inner     *segment
	mapping, filters int
	hairpins         bool
	next             uint16
	out              map[[2]netip.AddrPort]uint16 // external ports by source and by the part of the destination on which the mapping depends
	in               map[uint16]netip.AddrPort
	talked           map[uint16]map[netip.AddrPort]bool
}

// newRouter creates a router and a new segment behind it.
func newRouter(outer *segment, wan string, mapping, filters int) *router {
	r := &router{wan: netip.MustParseAddr(wan), outer: outer, mapping: mapping, filters: filters, next: 40000,
		out: make(map[[2]netip.AddrPort]uint16), in: make(map[uint16]netip.AddrPort), talked: make(map[uint16]map[netip.AddrPort]bool)}
	r.inner = &segment{w: outer.w, up: r, nodes: make(map[netip.Addr]func(packet))}
	outer.nodes[r.wan] = r.inbound
	return r
}

// part returns the part of an address that is relevant for a kind of mapping or filtering.
func part(behaviour int, a netip.AddrPort) netip.AddrPort {
	switch behaviour {
	case independent:
		return netip.AddrPort{}
	case byAddr:
		return netip.AddrPortFrom(a.Addr(), 0)
	}
	return a
}

func (r *router) outbound(p packet) {
	r.outer.w.mu.Lock()
	key := [2]netip.AddrPort{p.from, part(r.mapping, p.to)}
	port, ok := r.out[key]
	if !ok {
		r.next++
		port = r.next
		r.out[key], r.in[port], r.talked[port] = port, p.from, make(map[netip.AddrPort]bool)
	}
	r.talked[port][part(r.filters, p.to)] = true
	r.outer.w.mu.Unlock()
	if p.to.Addr() == r.wan && !r.hairpins {
		return
	}
	r.outer.send(packet{netip.AddrPortFrom(r.wan, port), p.to, p.data})
}

func (r *router) inbound(p packet) {
	r.outer.w.mu.Lock()
	to, ok := r.in[p.to.Port()]
	ok = ok && r.talked[p.to.Port()][part(r.filters, p.from)]
	r.outer.w.mu.Unlock()
	if ok {
		r.inner.deliver(packet{p.from, to, p.data})
	}
}

// conn is a UDP socket of a host on a segment.
type conn struct {
	net.PacketConn // nil: the other methods are never called
	at             netip.AddrPort
	on             *segment
	inbox          chan packet
	closed         chan struct{}
}

// newConn creates a socket of a host on a segment.
func newConn(on *segment, ip string) *conn {
	c := &conn{at: netip.AddrPortFrom(netip.MustParseAddr(ip), 5000), on: on, inbox: make(chan packet, 64), closed: make(chan struct{})}
	on.nodes[c.at.Addr()] = func(p packet) {
		select {
		case c.inbox <- p:
		default: // the buffer is full: dropped
		}
	}
	return c
}

func (c *conn) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case p := <-c.inbox:
		return copy(b, p.data), net.UDPAddrFromAddrPort(p.from), nil
	case <-c.closed:
		return 0, nil, net.ErrClosed
	}
}

func (c *conn) WriteTo(b []byte, to net.Addr) (int, error) {
	udp, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, errors.New("no address of UDP")
	}
	c.on.send(packet{c.at, plain(udp.AddrPort()), append([]byte(nil), b...)})
	return len(b), nil
}

func (c *conn) Close() error {
	close(c.closed)
	return nil
}
