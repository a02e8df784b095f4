package direct

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// strangerTime is how long a TCP connection may take to send its number. A connection within the
	// host may take unixTime.
	strangerTime = 5 * time.Second
	// proveTime is how long an expected connection may take for the handshake and the proof.
	proveTime = 20 * time.Second
	// maxStrangers is the number of connections that have not sent a number yet. So a flood of such
	// connections costs at most 64 descriptors. A flood can make the port close the connection of a
	// member whose number has not come yet. Then the member dials again.
	maxStrangers = 64
	// maxUnixStrangers is the same for connections within the host: the number of processes of a
	// large host that may connect at the same moment, before this process has its host key.
	maxUnixStrangers = 1024
	// keyTime is how long a stream waits for ServeHost: a process is known to others a moment before
	// it has its key.
	keyTime = 20 * time.Second
)

// Config is the configuration of a Port.
type Config struct {
	// IPs are addresses of this host to listen at, each with a free port. Listen adds others.
	IPs []netip.Addr
	// ID is the name of this process within the host. If it is not empty the port listens at a Unix
	// socket with a name that follows from it, where the system has abstract names.
	ID string
}

// Port listens for expected connections. All methods are safe for concurrent use.
//
// An accepted connection goes through these states, each with its owner and its end:
//
//	stranger    strangers   has not sent its number, or a stream within the host has not proven
//	                        that it holds the key; ends after a time, or to make room
//	greeted     greeted     its number was expected; has proveTime once its bundle is complete
//	delivered   the Wait    proven; Wait.Wait or Wait.Cancel takes it, or Host.Take
//
// mu guards the three sets, and also the Waits: a connection changes from one set to the next in
// one step, so that Close finds each of them exactly once.
type Port struct {
	id      string         // "" without a Unix socket
	working sync.WaitGroup // all goroutines of the port
	done    chan struct{}  // closed by Close
	serving chan struct{}  // closed by ServeHost

	// mu guards the fields below.
	mu        sync.Mutex
	closed    bool
	host      *Host // set once, by ServeHost
	offer     Offer // without a ticket
	listeners []net.Listener
	expected  map[[numberSize]byte]expectation // by the number that the dialler will send
	remote    strangers                        // over TCP
	local     strangers                        // over Unix sockets
	greeted   map[net.Conn]struct{}            // have sent a number, and belong to no Conn yet
}

// strangers are connections that have not sent a number, the oldest first.
type strangers struct {
	most  int
	socks []net.Conn
}

// expectation says what an expected connection is for.
type expectation struct {
	wait *Wait
	at   int // index among the connections of the Wait, or measuring
}

// measuring is the index of a connection for measurements.
const measuring = -1

// Open starts to listen. On a system without abstract Unix sockets there is no Unix socket, and Open
// returns no error. It fails if a process of this host listens with the same ID.
func Open(cfg Config) (*Port, error) {
	p := &Port{done: make(chan struct{}), serving: make(chan struct{}), expected: make(map[[numberSize]byte]expectation),
		remote: strangers{most: maxStrangers}, local: strangers{most: maxUnixStrangers}, greeted: make(map[net.Conn]struct{})}
	var err error
	if cfg.ID != "" {
		err = p.listenUnix(cfg.ID)
	}
	for _, ip := range cfg.IPs {
		if err == nil {
			err = p.Listen(ip, Range{})
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("direct: open: %w", err), p.Close())
	}
	return p, nil
}

// Range is a range of TCP ports, from which a listener takes the first free one. The zero Range
// means any port.
type Range struct{ First, Last uint16 }

// Listen makes the port also listen at an address of this host, at a free port of the range.
func (p *Port) Listen(ip netip.Addr, ports Range) error {
	l, err := listenTCP(ip, ports)
	if err != nil {
		return fmt.Errorf("direct: listen: %w", err)
	}
	addr := netip.AddrPortFrom(ip.Unmap(), l.Addr().(*net.TCPAddr).AddrPort().Port())
	// Clone, as callers of Offer may still read the old slice without the lock.
	if !p.serve(l, func(o *Offer) { o.Addrs = append(slices.Clone(o.Addrs), addr) }) {
		return fmt.Errorf("direct: listen: %w", net.ErrClosed)
	}
	return nil
}

// listenTCP listens at the first free port of the range.
func listenTCP(ip netip.Addr, ports Range) (net.Listener, error) {
	config := net.ListenConfig{Control: avoidBBR}
	network := "tcp4"
	if !ip.Unmap().Is4() {
		network = "tcp6"
	}
	for port := ports.First; ; port++ {
		l, err := config.Listen(context.Background(), network, netip.AddrPortFrom(ip.Unmap(), port).String())
		// Only a port in use is a reason to try the next. The zero Range tries port 0 once: the
		// kernel chooses.
		if !errors.Is(err, syscall.EADDRINUSE) || port >= ports.Last {
			return l, err
		}
	}
}

// listenUnix adds the Unix socket, if the system has abstract names. Such a name ends with its
// process: a killed process leaves no file, and a second process with the same ID fails here.
func (p *Port) listenUnix(id string) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	l, err := net.Listen("unix", UnixTarget(id).Addr)
	if err != nil {
		return err
	}
	p.id = id
	p.serve(l, func(o *Offer) { o.KernelID = kernelID() })
	return nil
}

// serve accepts connections at l from now on, and calls add to put l into the offer. If the port is
// closed it closes l and returns false.
func (p *Port) serve(l net.Listener, add func(*Offer)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = l.Close()
		return false
	}
	p.listeners = append(p.listeners, l)
	add(&p.offer)
	p.working.Go(func() { p.accept(l) })
	return true
}

// Offer returns the offer to send to the holder of a ticket.
func (p *Port) Offer(t Ticket) Offer {
	p.mu.Lock()
	o := p.offer
	p.mu.Unlock()
	o.Ticket = t
	return o
}

// Expect expects the holder of a ticket from now until Cancel, which the caller must call. If cfg
// is not nil, connections over TCP must use TLS.
func (p *Port) Expect(t Ticket, cfg *tls.Config) *Wait {
	w := &Wait{port: p, ticket: t, tls: cfg, results: make(chan result, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range maxStripes {
		p.expected[t.number(i)] = expectation{w, i}
	}
	p.expected[t.measureNumber()] = expectation{w, measuring}
	return w
}

// accept accepts connections until the listener is closed. It retries after errors such as a lack
// of file descriptors.
func (p *Port) accept(l net.Listener) {
	for {
		sock, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !p.pauseAfterError() {
				return
			}
			continue
		}
		if !p.addStranger(sock) {
			_ = sock.Close()
			return
		}
		p.working.Go(func() { p.receive(sock) })
	}
}

// pauseAfterError pauses after an error that may be temporary; false if the port is closed.
func (p *Port) pauseAfterError() bool {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}

// addStranger counts a connection that has not sent its number. If there are too many it closes the
// oldest. It returns false if the port is closed.
func (p *Port) addStranger(sock net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	all := p.strangersOf(sock)
	if len(all.socks) >= all.most {
		// The oldest has had the most time to send its number.
		_ = all.socks[0].Close()
		all.socks = all.socks[1:]
	}
	all.socks = append(all.socks, sock)
	return true
}

// strangersOf returns the set of strangers to which a connection belongs.
func (p *Port) strangersOf(sock net.Conn) *strangers {
	if isUnix(sock) {
		return &p.local
	}
	return &p.remote
}

// removeStrangerLocked ends the state of a stranger. It fails if the connection was closed, to make
// room for a newer one or with the port.
func (p *Port) removeStrangerLocked(sock net.Conn) error {
	all := p.strangersOf(sock)
	i := slices.Index(all.socks, sock)
	if i < 0 {
		return errors.New("too many connections have not sent their connection number: this one, the oldest, was closed")
	}
	all.socks = slices.Delete(all.socks, i, i+1)
	if p.closed {
		return net.ErrClosed
	}
	return nil
}

// receive passes a connection to the Wait that expects it or to the Host, or closes it. The goroutine
// of the last connection of a bundle does the handshake for the whole bundle.
func (p *Port) receive(sock net.Conn) {
	b, err := readGreeting(sock)
	if err == nil && b[numberSize] == hostStream && isUnix(sock) {
		p.receiveHost(sock, [numberSize]byte(b[:]))
		return
	}
	w, measured, err := p.match(sock, b, err)
	switch {
	case err != nil:
		_ = sock.Close()
	case measured:
		_ = serveMeasurement(sock, &w.ticket) // the dialler has the result
		p.release(sock)
	case w != nil:
		c, err := w.authenticate()
		p.deliver(w, result{c, err})
	}
}

// receiveHost answers the process that has sent hostStream. The connection counts as a stranger
// until the process has proven that it holds the key.
func (p *Port) receiveHost(sock net.Conn, number [numberSize]byte) {
	claim, err := p.welcome(sock, number)
	p.mu.Lock()
	err = errors.Join(err, p.removeStrangerLocked(sock))
	p.mu.Unlock()
	if err != nil {
		_ = sock.Close()
		return
	}
	p.host.Take(newConn(sock), claim[2:], claim[0])
}

// welcome reads the claim and the proof of a stream, and answers. It fails if the stream is refused.
func (p *Port) welcome(sock net.Conn, number [numberSize]byte) (claim string, err error) {
	in := bufio.NewReaderSize(sock, 2+255+proofSize) // the dialler sends no more before the answer
	claim, err = readClaim(in)
	if err != nil {
		return "", err
	}
	var t Ticket
	timer := time.NewTimer(keyTime)
	defer timer.Stop()
	select {
	case <-p.serving:
		t = p.host.ticket(number, claim, p.id)
	case <-timer.C:
		t = NewTicket() // nobody can prove that he holds its key
	case <-p.done:
		return "", net.ErrClosed
	}
	// This answer is no proof: a dialler with another key learns that it has to take another way.
	answer := make([]byte, proofSize)
	_, err = t.check(in, dialLabel)
	if err == nil {
		refusal := p.host.Admit(claim[2:])
		answer = t.proof(answers()[refusal])
		if refusal > 0 {
			err = refusal
		}
	}
	// The write does not block: the socket's buffer has room for an answer.
	_, failed := sock.Write(answer)
	return claim, errors.Join(err, failed, sock.SetDeadline(time.Time{}))
}

// readClaim reads the claim that follows hostStream in a greeting.
func readClaim(in io.Reader) (string, error) {
	b := make([]byte, 2+255)
	if _, err := io.ReadFull(in, b[:2]); err != nil {
		return "", err
	}
	b = b[:2+int(b[1])]
	_, err := io.ReadFull(in, b[2:])
	return string(b), err
}

// readGreeting reads the first bytes of a connection, within a limit of time for all that a stranger
// sends.
func readGreeting(sock net.Conn) (b [greetingSize]byte, err error) {
	limit := strangerTime
	if isUnix(sock) {
		limit = unixTime
	}
	err = sock.SetDeadline(time.Now().Add(limit))
	if err == nil {
		err = checkUser(sock)
	}
	if err == nil {
		_, err = io.ReadFull(sock, b[:])
	}
	return b, err
}

// release closes a connection that the port owns, and removes it.
func (p *Port) release(sock net.Conn) {
	p.mu.Lock()
	delete(p.greeted, sock)
	p.mu.Unlock()
	_ = sock.Close()
}

// match finds the Wait of a connection by its greeting, if that could be read. It returns the Wait
// once all of its connections have come, and nil before that. For a measurement it returns the Wait
// at once.
func (p *Port) match(sock net.Conn, b [greetingSize]byte, read error) (w *Wait, measured bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := errors.Join(p.removeStrangerLocked(sock), read); err != nil {
		return nil, false, err
	}
	number := [numberSize]byte(b[:])
	at, ok := p.expected[number]
	if !ok {
		return nil, false, errors.New("no Wait expects a connection with this number")
	}
	if at.at == measuring {
		if !at.wait.measuredLocked() {
			return nil, false, fmt.Errorf("more than %d measurements", maxMeasurements)
		}
		p.greeted[sock] = struct{}{}
		return at.wait, true, nil
	}
	// A number is good for one connection: a second connection with it is an impostor or an
	// error.
	delete(p.expected, number)
	all, err := at.wait.addLocked(sock, at.at, int(b[numberSize]))
	if err != nil || !all {
		return nil, false, err
	}
	return at.wait, false, nil
}

// deliver passes the result to w. The connections of w belong to the result from then on; they are
// closed if there is an error or w is cancelled.
func (p *Port) deliver(w *Wait, r result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.err == nil && p.closed {
		r = result{err: net.ErrClosed}
	}
	w.dropLocked(r.err != nil || w.over)
	// results has room: a Wait gets one result.
	if !w.over {
		w.results <- r
	}
}

// Close closes the listeners and all connections that no caller of Wait.Wait owns, and waits for
// the port's goroutines. Pending calls of Wait.Wait fail.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	for _, s := range slices.Concat(p.remote.socks, p.local.socks) {
		_ = s.Close()
	}
	for s := range p.greeted {
		_ = s.Close()
	}
	p.mu.Unlock()
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	p.working.Wait()
	return errors.Join(errs...)
}
