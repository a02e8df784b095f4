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
	// strangerTime is how long whoever has connected may take to say its number.
	strangerTime = 5 * time.Second
	// proveTime is how long somebody who is expected may take for handshake and proof.
	proveTime = 20 * time.Second
	// maxStrangers is how many may be connected that have not said a number yet.
	maxStrangers = 64
)

// Config says where a Port listens.
type Config struct {
	// IPs are addresses of this host; each gets a free port. Listen adds others.
	IPs []netip.Addr
	// Unix asks for a Unix socket, where the system has abstract names.
	Unix bool
}

// Port listens for those that are expected. All methods are safe for concurrent use.
type Port struct {
	working sync.WaitGroup // everything that was started
	done    chan struct{}  // closed by Close

	mu        sync.Mutex
	closed    bool
	offer     Offer // without ticket
	listeners []net.Listener
	expected  map[[numberSize]byte]place
	strangers []net.Conn            // oldest first
	greeted   map[net.Conn]struct{} // have said a number, and nobody has them yet
}

// place is one of the connections that a Wait is for.
type place struct {
	wait *Wait
	at   int // measuring for those that only measure
}

// measuring is the place of a connection that carries no data.
const measuring = -1

// Open starts to listen. Where Unix sockets cannot be had there is none in the offers.
func Open(cfg Config) (*Port, error) {
	p := &Port{done: make(chan struct{}), expected: make(map[[numberSize]byte]place), greeted: make(map[net.Conn]struct{})}
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

// Range is a range of TCP ports, of which a listener takes the first free one. The zero
// Range leaves the choice to the system.
type Range struct{ First, Last uint16 }

// Listen adds an address of this host, at which the port listens from now on.
func (p *Port) Listen(ip netip.Addr, ports Range) error {
	l, err := listenTCP(ip, ports)
	if err != nil {
		return fmt.Errorf("direct: listen: %w", err)
	}
	door := netip.AddrPortFrom(ip.Unmap(), l.Addr().(*net.TCPAddr).AddrPort().Port())
	if !p.serve(l, func(o *Offer) { o.Doors = append(slices.Clone(o.Doors), door) }) {
		return fmt.Errorf("direct: listen: %w", net.ErrClosed)
	}
	return nil
}

// listenTCP listens at the first port of the range that is free.
func listenTCP(ip netip.Addr, ports Range) (net.Listener, error) {
	door := net.ListenConfig{Control: avoidBBR}
	network := "tcp4"
	if !ip.Unmap().Is4() {
		network = "tcp6"
	}
	for port := ports.First; ; port++ {
		l, err := door.Listen(context.Background(), network, netip.AddrPortFrom(ip.Unmap(), port).String())
		if !errors.Is(err, syscall.EADDRINUSE) || port >= ports.Last {
			return l, err
		}
	}
}

// openUnix adds the socket, if it can be had and processes of this host can tell that they
// are of one.
func (p *Port) openUnix() {
	site, ok := site()
	if !ok {
		return
	}
	if l, err := ListenAbstract("elrun-direct-" + rand.Text()); err == nil {
		p.serve(l, func(o *Offer) { o.Site, o.Socket = site, l.Addr().String() })
	}
}

// serve accepts connections at l from now on, and puts it into the offers. It closes l and
// reports false if the port is closed.
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

// Offer returns what to tell to the holder of a ticket.
func (p *Port) Offer(t Ticket) Offer {
	p.mu.Lock()
	o := p.offer
	p.mu.Unlock()
	o.Ticket = t
	return o
}

// accept takes connections until the listener is closed. A lack of descriptors passes.
func (p *Port) accept(l net.Listener) {
	for {
		sock, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !p.breathe() {
				return
			}
			continue
		}
		if !p.enter(sock) {
			_ = sock.Close()
			return
		}
		p.working.Go(func() { p.receive(sock) })
	}
}

// breathe waits a moment after an error that may pass, and reports whether the port is
// still open.
func (p *Port) breathe() bool {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}

// enter counts a stranger; one too many ends the oldest. It reports false if the port is
// closed.
func (p *Port) enter(sock net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if len(p.strangers) >= maxStrangers {
		_ = p.strangers[0].Close()
		p.strangers = p.strangers[1:]
	}
	p.strangers = append(p.strangers, sock)
	return true
}

// receive gives a connection to the one who waits for it, or ends it.
func (p *Port) receive(sock net.Conn) {
	w, measured, err := p.recognise(sock)
	switch {
	case err != nil:
		_ = sock.Close()
	case measured:
		_ = beMeasured(sock, &w.ticket) // the dialler knows what has come of it
		p.release(sock)
	case w != nil:
		c, err := w.welcome()
		p.deliver(w, result{c, err})
	}
}

// release ends the port's care for a connection, and the connection.
func (p *Port) release(sock net.Conn) {
	p.mu.Lock()
	delete(p.greeted, sock)
	p.mu.Unlock()
	_ = sock.Close()
}

// recognise reads the number, after which the connection is no stranger's any more. It
// returns the Wait when all its connections are there, nil before; of a connection that is only
// measured it returns the Wait at once.
func (p *Port) recognise(sock net.Conn) (w *Wait, measured bool, err error) {
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
	if i < 0 {
		return nil, false, errors.New("it had to make room")
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
		return nil, false, errors.New("nobody is expected under this number")
	}
	if at.at == measuring {
		if !at.wait.measuredLocked() {
			return nil, false, fmt.Errorf("more than %d measurements", maxMeasurements)
		}
		p.greeted[sock] = struct{}{}
		return at.wait, true, nil
	}
	delete(p.expected, number)
	all, err := at.wait.addLocked(sock, at.at, int(b[numberSize]))
	if err != nil || !all {
		return nil, false, err
	}
	return at.wait, false, nil
}

// deliver ends the port's care for the connections of w.
func (p *Port) deliver(w *Wait, r result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.err == nil && p.closed {
		r = result{err: net.ErrClosed}
	}
	w.dropLocked(r.err != nil || w.over)
	if !w.over {
		w.came <- r
	}
}

// Close ends the listening and all connections that nobody has fetched, and waits for its
// goroutines. Those who still wait get an error.
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
