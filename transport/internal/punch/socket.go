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

// ErrNoAnswer means that no candidate has answered in time.
var ErrNoAnswer = errors.New("no answer")

// Bounds of the pause between requests, which doubles. The first packets of each side may be
// dropped by the other side's router, until the other side has sent one.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 160 * time.Millisecond
)

// Account limits the work for QUIC packets of an address. It is called for each packet that was
// received or sent, with its size in bytes as read or sent; the other argument is 0. For a received
// packet it returns whether QUIC may read the packet.
type Account func(read, sent int) bool

// Socket is a UDP socket for QUIC that also makes and answers checks. Checks are processed in
// ReadFrom, so QUIC, or another goroutine, has to read all the time. All methods are safe for
// concurrent use.
//
// A packet that arrives is one of three: a STUN message, which the check with its credential
// processes; a packet from an address that passes, which QUIC reads; anything else, which is
// dropped. The first bits tell STUN and QUIC apart (RFC 9443).
type Socket struct {
	net.PacketConn

	// mu guards the fields below.
	mu     sync.Mutex
	checks map[[userSize]byte]*running // in progress, by credential
	passes map[netip.AddrPort]Account  // addresses whose QUIC packets pass
}

// running is a check in progress.
type running struct {
	*check
	account Account
	// added are the addresses that this check has added to passes.
	added []netip.AddrPort
	// changed has capacity 1. It gets a token when there is an answer or a new candidate.
	changed chan struct{}
}

// New returns a socket over conn. No QUIC packets pass yet.
func New(conn net.PacketConn) *Socket {
	return &Socket{PacketConn: conn, checks: make(map[[userSize]byte]*running), passes: make(map[netip.AddrPort]Account)}
}

// ReadFrom implements net.PacketConn. It processes the messages of checks, and returns the next
// QUIC packet that passes.
func (s *Socket) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, addr, err := s.PacketConn.ReadFrom(b)
		if err != nil {
			return n, addr, err
		}
		if udp, ok := addr.(*net.UDPAddr); ok && s.receive(b[:n], plain(udp.AddrPort())) {
			return n, addr, nil
		}
	}
}

// WriteTo implements net.PacketConn. It sends a packet of QUIC.
func (s *Socket) WriteTo(b []byte, addr net.Addr) (int, error) {
	if udp, ok := addr.(*net.UDPAddr); ok {
		if account := s.accountOf(plain(udp.AddrPort())); account != nil {
			account(0, len(b))
		}
	}
	return s.PacketConn.WriteTo(b, addr)
}

// accountOf returns the account of an address; nil if there is none.
func (s *Socket) accountOf(a netip.AddrPort) Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passes[a]
}

// plain returns the canonical form of an address: IPv4 is never mapped into IPv6.
func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// SetReadBuffer sets the size of the kernel's receive buffer in bytes, as far as the kernel allows.
// QUIC calls it.
func (s *Socket) SetReadBuffer(n int) error {
	if c, ok := s.PacketConn.(*net.UDPConn); ok {
		_ = c.SetReadBuffer(n)
	}
	return nil
}

// SetWriteBuffer sets the size of the kernel's send buffer in bytes, as far as the kernel allows.
func (s *Socket) SetWriteBuffer(n int) error {
	if c, ok := s.PacketConn.(*net.UDPConn); ok {
		_ = c.SetWriteBuffer(n)
	}
	return nil
}

// receive processes a packet, and reports whether QUIC is to read it.
func (s *Socket) receive(b []byte, from netip.AddrPort) bool {
	if isMessage(b) {
		if answer := s.process(b, from); answer != nil {
			_, _ = s.PacketConn.WriteTo(answer, net.UDPAddrFromAddrPort(from)) // a lost answer is no harm: the request is repeated
		}
		return false
	}
	s.mu.Lock()
	account, ok := s.passes[from]
	s.mu.Unlock()
	return ok && (account == nil || account(len(b), 0))
}

// process processes a message of a check, and returns the answer to send, or nil.
func (s *Socket) process(b []byte, from netip.AddrPort) []byte {
	m, ok := parse(b)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.checks[m.user]
	// No check has this credential: the packet is late, or from a stranger. So there is no answer.
	if r == nil {
		return nil
	}
	answer, theirs := r.process(&m, from)
	// An address that an earlier check has added stays with that check.
	if _, passes := s.passes[from]; theirs && !passes {
		s.passes[from] = r.account
		r.added = append(r.added, from)
	}
	// One token is enough: search reads the whole state after each token.
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return answer
}

// begin delivers messages to the check k until end is called. After that, QUIC packets from the
// addresses that the check has proven still pass.
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

// Serve answers requests with the credential until end is called. The answers have the external
// address of the sender.
func (s *Socket) Serve(c Credential) (end func()) {
	_, end = s.begin(newCheck(c, responder, false, nil), nil)
	return end
}

// Observe returns the external address of this socket, as seen by a server that serves the
// credential.
func (s *Socket) Observe(ctx context.Context, c Credential, server netip.AddrPort) (netip.AddrPort, error) {
	r, end := s.begin(newCheck(c, initiator, false, []netip.AddrPort{server}), nil)
	defer end()
	if _, err := s.search(ctx, r); err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask %v by UDP for the external address of this socket: %w", server, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return plain(r.mapped), nil
}

// CheckList describes an attempt of two sides to reach each other. Both sides start at about the
// same time.
type CheckList struct {
	Credential Credential       // shared by both sides
	Initiator  bool             // true on one of the two sides
	Candidates []netip.AddrPort // addresses at which the other side may be
	Account    Account          // for QUIC packets of the other side; nil passes all
}

// StartChecks starts a search for the other side. Found returns an address that works in both
// directions. QUIC packets from that address pass until Drop. The other side may need more time to
// find its address, so this side answers checks until Leave.
func (s *Socket) StartChecks(m CheckList) *Search {
	role := responder
	if m.Initiator {
		role = initiator
	}
	r, end := s.begin(newCheck(m.Credential, role, true, m.Candidates), m.Account)
	return &Search{s: s, r: r, end: end}
}

// Search is an attempt in progress.
type Search struct {
	s   *Socket
	r   *running
	end func()
}

// Found waits for the address of the other side. The error wraps ErrNoAnswer if ctx ends before.
func (s *Search) Found(ctx context.Context) (netip.AddrPort, error) {
	at, err := s.s.search(ctx, s.r)
	if err != nil {
		return at, fmt.Errorf("UDP hole punching found no path through the routers: %w", err)
	}
	return at, nil
}

// Leave ends the search. It must be called once, also if Found has failed. For each address that
// the search has found, Leave calls keep. If keep returns false, QUIC gets no further packets from
// that address.
func (s *Search) Leave(keep func(netip.AddrPort) bool) {
	s.end()
	s.s.mu.Lock()
	all := s.r.added
	s.s.mu.Unlock()
	for _, a := range all {
		if !keep(a) {
			s.s.Drop(a)
		}
	}
}

// Drop discards QUIC packets from an address from now on, until a check makes it pass again.
func (s *Socket) Drop(a netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.passes, plain(a))
}

// search sends requests until one is answered, and returns the address of the answer.
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
			// A new candidate is asked at once, and all candidates when the pause is over.
			if again || !asked[a] {
				asked[a] = true
				_, _ = s.PacketConn.WriteTo(request, net.UDPAddrFromAddrPort(a)) // some candidates may have no route
			}
		}
	}
}

// progress returns the result of a check, and its candidates.
func (s *Socket) progress(r *running) (found netip.AddrPort, ask []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.found, r.ask[:len(r.ask):len(r.ask)]
}
