package direct

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Wait is an expected connection, or several connections that form a bundle. The dialler decides
// their number by the round trip, and each connection states the number. The result is delivered
// once, to results. The method Wait or Cancel receives it.
type Wait struct {
	port    *Port
	ticket  Ticket
	tls     *tls.Config
	results chan result // capacity 1

	// Guarded by the port's mu until all connections have come. After that the fields are only
	// read.
	socks   []net.Conn // by index; nil before the first has come
	missing int        // number of connections that have not come

	measurements int // number of measurements so far; guarded by the port's mu

	over bool // cancelled; guarded by the port's mu
}

// result is a connection or an error.
type result struct {
	conn *Conn
	err  error
}

// Wait waits for the connection, which the caller then owns. It fails when ctx ends, when the port
// closes, and if the other side does not hold the ticket.
func (w *Wait) Wait(ctx context.Context) (*Conn, error) {
	select {
	case r := <-w.results:
		return r.conn, r.err
	case <-w.port.done:
		return nil, fmt.Errorf("direct: wait: %w", net.ErrClosed)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Cancel ends the waiting, and closes a connection that Wait has not returned. It does not block.
func (w *Wait) Cancel() {
	p := w.port
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range maxStripes {
		delete(p.expected, w.ticket.number(i))
	}
	// The number for measurements outlives the connection, so that measurements can be repeated
	// until Cancel.
	delete(p.expected, w.ticket.measureNumber())
	// A handshake may be running for w. Then deliver sees over, and closes the connection.
	w.over = true
	if w.missing > 0 {
		w.dropLocked(true) // if no connection is missing deliver drops them
	}
	select {
	case r := <-w.results:
		if r.err == nil {
			_ = r.conn.Close()
		}
	default:
	}
}

// addLocked adds connection i of count, and reports whether all have come. All connections of a
// bundle must name the same count.
func (w *Wait) addLocked(sock net.Conn, i, count int) (bool, error) {
	// The first connection fixes the count.
	if w.socks == nil && i < count && count <= maxStripes {
		w.socks, w.missing = make([]net.Conn, count), count
	}
	if len(w.socks) != count || i >= count {
		return false, fmt.Errorf("the dialler announced connection %d of %d, but %d are expected", i, count, len(w.socks))
	}
	w.socks[i] = sock
	// From now on Close and Cancel find the connection in greeted.
	w.port.greeted[sock] = struct{}{}
	w.missing--
	return w.missing == 0, nil
}

// dropLocked removes the connections of w from the port, and closes them if closing is set.
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

// authenticate makes the handshake and checks the dialler's proof, within proveTime. The dialler's
// proof comes first: the acceptor sends nothing that depends on the key to a dialler that does not
// hold the key.
func (w *Wait) authenticate() (*Conn, error) {
	c := newConn(newBundle(w.socks))
	err := c.SetDeadline(time.Now().Add(proveTime))
	// A Unix socket needs no encryption: the kernel passes its bytes within the host, and
	// checkUser has checked the user of the other process.
	if err == nil && w.tls != nil && !isUnix(c.sock) {
		err = c.encrypt(func(below net.Conn) *tls.Conn { return tls.Server(below, w.tls) })
	}
	if err == nil {
		_, err = w.ticket.check(c, dialLabel)
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
