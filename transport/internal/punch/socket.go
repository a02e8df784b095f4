package punch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ErrNoAnswer: at none of the addresses somebody has answered in time.
var ErrNoAnswer = errors.New("no answer")

// The pauses between requests: the first packets of the one side may be thrown away by the
// other's router, until the other has sent one.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 160 * time.Millisecond
)

// Account is told of packets of QUIC: the bytes of one that came, or was sent. It says whether one
// that came is to be read.
type Account func(read, sent int) bool

// Socket is a UDP socket for QUIC that also makes and answers checks. QUIC reads it; somebody has
// to, for checks to be answered. All methods are safe for concurrent use.
type Socket struct {
	net.PacketConn

	mu     sync.Mutex
	checks map[[userSize]byte]*running
	passes map[netip.AddrPort]Account // whose packets are QUIC's
}

// running is a check in progress.
type running struct {
	*check
	account Account
	passing []netip.AddrPort // that it has let through
	changed chan struct{}    // has room for one: an answer came, or an address to ask
}

// New returns a socket over conn, which lets nothing through.
func New(conn net.PacketConn) *Socket {
	return &Socket{PacketConn: conn, checks: make(map[[userSize]byte]*running), passes: make(map[netip.AddrPort]Account)}
}

// ReadFrom returns the next packet that is for QUIC.
func (s *Socket) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, addr, err := s.PacketConn.ReadFrom(b)
		if err != nil {
			return n, addr, err
		}
		if udp, ok := addr.(*net.UDPAddr); ok && s.hear(b[:n], plain(udp.AddrPort())) {
			return n, addr, nil
		}
	}
}

// WriteTo sends a packet of QUIC.
func (s *Socket) WriteTo(b []byte, addr net.Addr) (int, error) {
	if udp, ok := addr.(*net.UDPAddr); ok {
		if account := s.accountOf(plain(udp.AddrPort())); account != nil {
			account(0, len(b))
		}
	}
	return s.PacketConn.WriteTo(b, addr)
}

// accountOf returns the account of an address, nil if it has none.
func (s *Socket) accountOf(a netip.AddrPort) Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passes[a]
}

// plain returns an address in the one form that is compared.
func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// SetReadBuffer and SetWriteBuffer set how much the kernel keeps, as far as it allows that.
func (s *Socket) SetReadBuffer(n int) error {
	if c, ok := s.PacketConn.(*net.UDPConn); ok {
		_ = c.SetReadBuffer(n)
	}
	return nil
}

// SetWriteBuffer is as SetReadBuffer.
func (s *Socket) SetWriteBuffer(n int) error {
	if c, ok := s.PacketConn.(*net.UDPConn); ok {
		_ = c.SetWriteBuffer(n)
	}
	return nil
}

// hear takes a packet, and reports whether it is QUIC's.
func (s *Socket) hear(b []byte, from netip.AddrPort) bool {
	if isMessage(b) {
		if answer := s.take(b, from); answer != nil {
			_, _ = s.PacketConn.WriteTo(answer, net.UDPAddrFromAddrPort(from)) // who asked asks again
		}
		return false
	}
	s.mu.Lock()
	account, ok := s.passes[from]
	s.mu.Unlock()
	return ok && (account == nil || account(len(b), 0))
}

// take takes a message of a check and returns the answer, if there is one to send.
func (s *Socket) take(b []byte, from netip.AddrPort) []byte {
	m, ok := parse(b)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.checks[m.user]
	if r == nil {
		return nil
	}
	answer, theirs := r.take(&m, from)
	if _, passes := s.passes[from]; theirs && !passes {
		s.passes[from] = r.account
		r.passing = append(r.passing, from)
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return answer
}

// begin lets a check take messages until end is called.
func (s *Socket) begin(k *check, account Account) (r *running, end func()) {
	r = &running{check: k, account: account, changed: make(chan struct{}, 1)}
	s.mu.Lock()
	s.checks[k.credential.User] = r
	s.mu.Unlock()
	return r, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.checks, k.credential.User)
	}
}

// Serve answers the requests of a holder of the credential, so that it learns where it is seen,
// until end is called.
func (s *Socket) Serve(c Credential) (end func()) {
	_, end = s.begin(newCheck(c, responder, false, nil), nil)
	return end
}

// Observe asks somebody who serves the credential where this socket is seen.
func (s *Socket) Observe(ctx context.Context, c Credential, server netip.AddrPort) (netip.AddrPort, error) {
	r, end := s.begin(newCheck(c, initiator, false, []netip.AddrPort{server}), nil)
	defer end()
	if _, err := s.search(ctx, r); err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask %v by UDP for the own address: %w", server, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return plain(r.mapped), nil
}

// Meeting is an attempt of two to reach each other, made by both at about the same time.
type Meeting struct {
	Credential Credential       // of both
	Initiator  bool             // one of the two is
	Candidates []netip.AddrPort // where the other may be
	Account    Account          // of what QUIC gets from there; nil reads all
}

// Meet looks for the other side. Found returns the address at which it is, when it can be reached
// there and can reach this socket from there; its packets pass from then on, and until Drop.
// The other side may need this one for longer, so it goes on answering until Leave.
func (s *Socket) Meet(m Meeting) *Search {
	role := responder
	if m.Initiator {
		role = initiator
	}
	r, end := s.begin(newCheck(m.Credential, role, true, m.Candidates), m.Account)
	return &Search{s: s, r: r, end: end}
}

// Search is a Meet in progress.
type Search struct {
	s   *Socket
	r   *running
	end func()
}

// Found returns where the other side is, or an error that wraps ErrNoAnswer when ctx ends before.
func (m *Search) Found(ctx context.Context) (netip.AddrPort, error) {
	at, err := m.s.search(ctx, m.r)
	if err != nil {
		return at, fmt.Errorf("no way through the routers by UDP: %w", err)
	}
	return at, nil
}

// Leave ends the search. Of the addresses that it has let through those stay that keep wants.
func (m *Search) Leave(keep func(netip.AddrPort) bool) {
	m.end()
	m.s.mu.Lock()
	all := m.r.passing
	m.s.mu.Unlock()
	for _, a := range all {
		if !keep(a) {
			m.s.Drop(a)
		}
	}
}

// Drop lets no packet of an address pass any more.
func (s *Socket) Drop(a netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.passes, plain(a))
}

// search sends requests until one is answered, and returns where.
func (s *Socket) search(ctx context.Context, r *running) (netip.AddrPort, error) {
	request, asked := r.request(), make(map[netip.AddrPort]bool)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := firstPause; ; {
		again := false
		select {
		case <-ctx.Done():
			return netip.AddrPort{}, fmt.Errorf("%w from %d addresses", ErrNoAnswer, len(asked))
		case <-r.changed:
		case <-timer.C:
			again = true
			timer.Reset(pause)
			pause = min(2*pause, lastPause)
		}
		found, ask := s.progress(r)
		if found.IsValid() {
			return found, nil
		}
		for _, a := range ask {
			if again || !asked[a] {
				asked[a] = true
				_, _ = s.PacketConn.WriteTo(request, net.UDPAddrFromAddrPort(a)) // there may be no route to some
			}
		}
	}
}

// progress returns what a check has found, and whom it is to ask.
func (s *Socket) progress(r *running) (found netip.AddrPort, ask []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.found, r.ask[:len(r.ask):len(r.ask)]
}
