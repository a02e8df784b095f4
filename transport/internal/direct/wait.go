package direct

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Wait is for one connection, or for several that are used as one.
type Wait struct {
	port   *Port
	ticket Ticket
	tls    *tls.Config
	came   chan result // of one element

	// Guarded by the port's mu until all are there, from then on only read.
	socks   []net.Conn // by their number; nil before the first has come
	missing int

	measurements int // so far; guarded by the port's mu

	over bool // guarded by the port's mu: nobody fetches it
}

// result is a connection, or why there is none.
type result struct {
	conn *Conn
	err  error
}

// Expect waits for the holder of a ticket, from now until Cancel, which must be called. On
// TCP it has to speak TLS under that configuration; nil is for plain connections.
func (p *Port) Expect(t Ticket, cfg *tls.Config) *Wait {
	w := &Wait{port: p, ticket: t, tls: cfg, came: make(chan result, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range maxStripes {
		p.expected[t.number(i)] = place{w, i}
	}
	p.expected[t.measureNumber()] = place{w, measuring}
	return w
}

// Wait returns the connection, which the caller owns.
func (w *Wait) Wait(ctx context.Context) (*Conn, error) {
	select {
	case r := <-w.came:
		return r.conn, r.err
	case <-w.port.done:
		return nil, fmt.Errorf("direct: wait: %w", net.ErrClosed)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Cancel ends the waiting, and a connection that nobody has fetched. It does not block.
func (w *Wait) Cancel() {
	p := w.port
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range maxStripes {
		delete(p.expected, w.ticket.number(i))
	}
	delete(p.expected, w.ticket.measureNumber())
	w.over = true
	if w.missing > 0 {
		w.dropLocked(true) // when all are there deliver does it
	}
	select {
	case r := <-w.came:
		if r.err == nil {
			_ = r.conn.Close()
		}
	default:
	}
}

// addLocked takes in connection i of count, and reports whether all are there.
func (w *Wait) addLocked(sock net.Conn, i, count int) (bool, error) {
	if w.socks == nil && i < count && count <= maxStripes {
		w.socks, w.missing = make([]net.Conn, count), count
	}
	if len(w.socks) != count || i >= count {
		return false, fmt.Errorf("connection %d of %d, %d are expected", i, count, len(w.socks))
	}
	w.socks[i] = sock
	w.port.greeted[sock] = struct{}{}
	w.missing--
	return w.missing == 0, nil
}

// dropLocked ends the port's care for the connections, and with it, where asked for, the
// connections.
func (w *Wait) dropLocked(closing bool) {
	for _, s := range w.socks {
		if s == nil {
			continue
		}
		delete(w.port.greeted, s)
		if closing {
			_ = s.Close()
		}
	}
}

// welcome checks who has come.
func (w *Wait) welcome() (*Conn, error) {
	c := newConn(newBundle(w.socks))
	err := c.SetDeadline(time.Now().Add(proveTime))
	if err == nil && w.tls != nil && !c.unix() {
		err = c.encrypt(func(below net.Conn) *tls.Conn { return tls.Server(below, w.tls) })
	}
	if err == nil {
		err = w.ticket.check(c, dialLabel)
	}
	if err == nil {
		_, err = c.Write(w.ticket.proof(waitLabel))
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, fmt.Errorf("direct: admit %s: %w", c.Addr(), err)
	}
	return c, nil
}
