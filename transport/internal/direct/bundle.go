package direct

import (
	"errors"
	"net"
	"time"

	"github.com/elrun/elrun/internal/netpoll"
)

// The kernel keeps sent bytes until they are acknowledged: by default up to 4 MiB for a connection,
// its own bookkeeping included. So a connection carries at most about 2 to 4 MiB per round trip,
// however fast the path is. On long round trips several connections fill the path better: one for
// each stripeTime of the round trip, which is enough for 1 Gbit/s.
const (
	maxStripes = 12
	stripeTime = 10 * time.Millisecond
	// stripeSize is the number of bytes that go over one connection before the stream goes on over
	// the next. Shorter messages cost no more than over one connection.
	stripeSize = 64 << 10
)

// stripes returns the number of connections for a path with that round trip.
func stripes(trip time.Duration) int {
	return int(min(1+trip/stripeTime, maxStripes))
}

// bundle carries one stream of bytes over several connections in stripes: byte b goes over
// connection b / stripeSize modulo their number. Each side works on one connection at a time; the
// buffers of the others fill and drain meanwhile. It allows one reader and one writer at a time.
type bundle struct {
	net.Conn // the first connection, for methods that concern one connection, such as LocalAddr
	socks    []net.Conn
	// lines are the streams over socks, in the same order.
	lines   []*netpoll.Stream
	in, out cursor
}

// cursor is a position in the stream. The reader and the writer have one each, as the two
// directions are independent.
type cursor struct {
	at int // index of the connection
	// done is the number of bytes of the present stripe that were read or written.
	done int
}

// newBundle joins connections, which have the same order at both sides: the order of the numbers in
// the ticket. A single connection is returned as it is. Several connections have a small limit for
// unsent bytes from the start: together their send queues would hold megabytes.
func newBundle(socks []net.Conn) net.Conn {
	for _, s := range socks {
		takeBBR(s, roundTrip(s))
	}
	if len(socks) == 1 {
		return socks[0]
	}
	limitAll(socks, queueLeast)
	b := &bundle{Conn: socks[0], socks: socks}
	for _, s := range socks {
		b.lines = append(b.lines, netpoll.NewStream(s, true))
	}
	return b
}

// socksOf returns the connections of a bundle, or sock itself.
func socksOf(sock net.Conn) []net.Conn {
	if b, ok := sock.(*bundle); ok {
		return b.socks
	}
	return []net.Conn{sock}
}

// current returns the connection at c and the number of bytes left of its stripe.
func (b *bundle) current(c *cursor) (*netpoll.Stream, int) { return b.lines[c.at], stripeSize - c.done }

// advance moves c by n bytes of one stripe.
func (b *bundle) advance(c *cursor, n int) {
	c.done += n
	if c.done == stripeSize {
		*c = cursor{at: (c.at + 1) % len(b.socks)}
	}
}

// Read implements io.Reader.
func (b *bundle) Read(p []byte) (int, error) {
	line, left := b.current(&b.in)
	n, err := line.Read(p[:min(len(p), left)])
	b.advance(&b.in, n)
	return n, err
}

// Write implements io.Writer.
func (b *bundle) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		// left is the number of bytes left in the stripe. Both sides change the connection after
		// the same number of bytes.
		line, left := b.current(&b.out)
		n, err := line.Write(p[:min(len(p), left)])
		b.advance(&b.out, n)
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}

// WriteTwo writes head and then body.
func (b *bundle) WriteTwo(head, body []byte) error {
	_, err := b.Write(head)
	if err == nil {
		_, err = b.Write(body)
	}
	return err
}

// each calls do with all connections, and joins the errors.
func (b *bundle) each(do func(net.Conn) error) error {
	var errs []error
	for _, s := range b.socks {
		errs = append(errs, do(s))
	}
	return errors.Join(errs...)
}

// Close closes all connections.
func (b *bundle) Close() error { return b.each(net.Conn.Close) }

// SetDeadline sets the deadline of all connections.
func (b *bundle) SetDeadline(t time.Time) error {
	return b.each(func(s net.Conn) error { return s.SetDeadline(t) })
}

// SetReadDeadline sets the read deadline of all connections.
func (b *bundle) SetReadDeadline(t time.Time) error {
	return b.each(func(s net.Conn) error { return s.SetReadDeadline(t) })
}

// SetWriteDeadline sets the write deadline of all connections.
func (b *bundle) SetWriteDeadline(t time.Time) error {
	return b.each(func(s net.Conn) error { return s.SetWriteDeadline(t) })
}

// SetLinger sets SO_LINGER of all connections, as net.TCPConn does.
func (b *bundle) SetLinger(seconds int) error {
	return b.each(func(s net.Conn) error { return linger(s, seconds) })
}

// linger sets SO_LINGER of a connection, if it has that option. With 0 seconds Close discards
// unsent bytes and sends a reset (RST).
func linger(s net.Conn, seconds int) error {
	if t, ok := s.(interface{ SetLinger(seconds int) error }); ok {
		return t.SetLinger(seconds)
	}
	return nil
}
