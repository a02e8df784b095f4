package direct

import (
	"errors"
	"net"
	"time"

	"github.com/elrun/elrun/internal/netpoll"
)

// The kernel keeps what was sent until it is acknowledged, by default up to 4 MiB for a
// connection, its own records included. So a connection carries at most about 2 to 4 MiB in
// a round trip, however fast the path is, and where round trips are long several fill it
// better: one for each stripeTime of a round trip, which is enough for 1 Gbit/s.
const (
	maxStripes = 12
	stripeTime = 10 * time.Millisecond
	// stripeSize is how much goes over one connection before it is the next one's turn, in
	// bytes. Messages that are shorter cost nothing more than over one connection.
	stripeSize = 64 << 10
)

// stripes returns how many connections a path with that round trip takes.
func stripes(trip time.Duration) int {
	return int(min(1+trip/stripeTime, maxStripes))
}

// bundle carries one stream of bytes over several connections: byte b goes over connection
// b / stripeSize, and round again. A side works at one of them at a time; the buffers of the
// others fill and drain meanwhile. It has one reader and one writer at a time.
type bundle struct {
	net.Conn // the first, for all that only one is asked for
	socks    []net.Conn
	lines    []*netpoll.Stream // over them
	in, out  cursor
}

// cursor is a place in the stream.
type cursor struct {
	at   int // connection
	done int // bytes of its turn
}

// newBundle joins connections, in the same order at both sides. One stays what it is. Of
// several little waits in the kernel from the start: together they would hold megabytes.
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

// socksOf returns the connections that sock is made of.
func socksOf(sock net.Conn) []net.Conn {
	if b, ok := sock.(*bundle); ok {
		return b.socks
	}
	return []net.Conn{sock}
}

// turn returns the connection at c and how much of its turn is left.
func (b *bundle) turn(c *cursor) (*netpoll.Stream, int) { return b.lines[c.at], stripeSize - c.done }

// advance moves c by n bytes of one turn.
func (b *bundle) advance(c *cursor, n int) {
	c.done += n
	if c.done == stripeSize {
		*c = cursor{at: (c.at + 1) % len(b.socks)}
	}
}

// Read implements io.Reader.
func (b *bundle) Read(p []byte) (int, error) {
	line, left := b.turn(&b.in)
	n, err := line.Read(p[:min(len(p), left)])
	b.advance(&b.in, n)
	return n, err
}

// Write implements io.Writer.
func (b *bundle) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		line, left := b.turn(&b.out)
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

// WriteTwo writes two slices one after the other.
func (b *bundle) WriteTwo(head, body []byte) error {
	_, err := b.Write(head)
	if err == nil {
		_, err = b.Write(body)
	}
	return err
}

// each does something to all connections.
func (b *bundle) each(do func(net.Conn) error) error {
	var errs []error
	for _, s := range b.socks {
		errs = append(errs, do(s))
	}
	return errors.Join(errs...)
}

// Close closes all.
func (b *bundle) Close() error { return b.each(net.Conn.Close) }

// SetDeadline sets that of all.
func (b *bundle) SetDeadline(t time.Time) error {
	return b.each(func(s net.Conn) error { return s.SetDeadline(t) })
}

// SetReadDeadline sets that of all.
func (b *bundle) SetReadDeadline(t time.Time) error {
	return b.each(func(s net.Conn) error { return s.SetReadDeadline(t) })
}

// SetWriteDeadline sets that of all.
func (b *bundle) SetWriteDeadline(t time.Time) error {
	return b.each(func(s net.Conn) error { return s.SetWriteDeadline(t) })
}

// SetLinger sets that of all, as net.TCPConn does.
func (b *bundle) SetLinger(seconds int) error {
	return b.each(func(s net.Conn) error { return linger(s, seconds) })
}

// linger sets how a connection ends, where it has such a setting.
func linger(s net.Conn, seconds int) error {
	if t, ok := s.(interface{ SetLinger(seconds int) error }); ok {
		return t.SetLinger(seconds)
	}
	return nil
}
