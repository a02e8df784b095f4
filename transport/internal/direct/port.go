package direct

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// strangerTime is how long a connection may take to send its number.
	strangerTime = 5 * time.Second
	// proveTime is how long an expected connection may take for the handshake and the proof.
	proveTime = 20 * time.Second
	// maxStrangers is the number of connections that have not sent a number yet. So a flood of such
	// connections costs at most 64 descriptors. A flood can make the port close the connection of a
	// member whose number has not come yet. Then the member dials again.
	maxStrangers = 64
)

// Config is the configuration of a Port.
type Config struct {
	// IPs are addresses of this host to listen at, each with a free port. Listen adds others.
	IPs []netip.Addr
	// Unix asks for a Unix socket, where the system has abstract names.
	Unix bool
}

// Port listens for expected connections. All methods are safe for concurrent use.
//
// An accepted connection goes through these states, each with its owner and its end:
//
//	stranger    strangers   has not sent its number; ends after strangerTime, or to make room
//	greeted     greeted     its number was expected; has proveTime once its bundle is complete
//	delivered   the Wait    proven; Wait.Wait or Wait.Cancel takes it
//
// mu guards the three sets, and also the Waits: a connection changes from one set to the next in
// one step, so that Close finds each of them exactly once.
type Port struct {
	working sync.WaitGroup // all goroutines of the port
	done    chan struct{}  // closed by Close

	// mu guards the fields below.
	mu        sync.Mutex
	closed    bool
	offer     Offer // without a ticket
	listeners []net.Listener
	expected  map[[numberSize]byte]expectation // by the number that the dialler will send
	strangers []net.Conn                       // oldest first
	greeted   map[net.Conn]struct{}            // have sent a number, and belong to no Conn yet
}

// expectation says what an expected connection is for.
type expectation struct {
	wait *Wait
	at   int // index among the connections of the Wait, or measuring
}

// measuring is the index of a connection for measurements.
const measuring = -1

// Open starts to listen. On a system without abstract Unix sockets Offer names no Unix socket, and
// Open returns no error.
func Open(cfg Config) (*Port, error) {
	p := &Port{done: make(chan struct{}), expected: make(map[[numberSize]byte]expectation), greeted: make(map[net.Conn]struct{})}
	for _, ip := range cfg.IPs {
		if err := p.Listen(ip, Range{}); err != nil {
			return nil, errors.Join(fmt.Errorf("direct: open: %w", err), p.Close())
		}
	}
	if cfg.Unix {
		p.openUnix()
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

// openUnix adds the Unix socket, if the system has abstract names and the kernel ID is known. The
// name of the socket is random, so a process that knows the name has seen an offer.
func (p *Port) openUnix() {
	id, ok := kernelID()
	if !ok {
		return
	}
	// An error is not reported: without this socket, the peers of this host connect over TCP.
	if l, err := ListenAbstract("elrun-direct-" + rand.Text()); err == nil {
		p.serve(l, func(o *Offer) { o.KernelID, o.Socket = id, l.Addr().String() })
	}
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

// addStranger counts a connection without a number. If there are too many it closes the oldest. It
// returns false if the port is closed.
func (p *Port) addStranger(sock net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if len(p.strangers) >= maxStrangers {
		// The oldest has had the most time to send its number.
		_ = p.strangers[0].Close()
		p.strangers = p.strangers[1:]
	}
	p.strangers = append(p.strangers, sock)
	return true
}

// receive passes a connection to the Wait that expects it, or closes it. The goroutine of the last
// connection of a bundle does the handshake for the whole bundle.
func (p *Port) receive(sock net.Conn) {
	w, measured, err := p.match(sock)
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

// release closes a connection that the port owns, and removes it.
func (p *Port) release(sock net.Conn) {
	p.mu.Lock()
	delete(p.greeted, sock)
	p.mu.Unlock()
	_ = sock.Close()
}

// match reads the number of a connection. It returns the Wait once all of its connections have
// come, and nil before that. For a measurement it returns the Wait at once.
func (p *Port) match(sock net.Conn) (w *Wait, measured bool, err error) {
	var b [helloSize]byte
	err = sock.SetDeadline(time.Now().Add(strangerTime))
	if err == nil {
		err = CheckUser(sock)
	}
	if err == nil {
		_, err = io.ReadFull(sock, b[:])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.strangers, sock)
	// addStranger has closed this connection to make room for a newer one.
	if i < 0 {
		return nil, false, errors.New("too many connections have not sent their connection number: this one, the oldest, was closed")
	}
	p.strangers = slices.Delete(p.strangers, i, i+1)
	if err == nil && p.closed {
		err = net.ErrClosed
	}
	if err != nil {
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
	for _, s := range p.strangers {
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
