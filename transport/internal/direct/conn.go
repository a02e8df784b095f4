package direct

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/internal/netpoll"
)

const (
	// recordSize is the most that a TLS record carries, in bytes.
	recordSize = 16 << 10
	// readAhead is how much of the encrypted stream is read at once, in bytes.
	readAhead = 256 << 10
	// batchSize is how much of the encrypted stream is written at once, in bytes.
	batchSize = 256 << 10
)

// Conn is a connection with a peer that has proved who it is. It has one reader and one
// writer at a time; the other methods may be called meanwhile.
type Conn struct {
	sock  net.Conn  // or a bundle
	line  line      // what carries the bytes of sock
	read  io.Reader // line, or what decrypts it
	tls   *tls.Conn // nil if the connection is not encrypted
	out   *batch    // below tls
	lead  []byte    // the first record of a frame, where records are made
	queue queue

	target Target                // what was dialled; zero at the side that has waited
	given  atomic.Pointer[error] // why this side has given it up; nil if it has not
	ending sync.Once
	onEnd  func() // nil unless somebody wants to know
}

// line carries the bytes of a connection.
type line interface {
	io.ReadWriter
	WriteTwo(head, body []byte) error
}

// newConn wraps a connected socket, or a bundle of them.
func newConn(sock net.Conn) *Conn {
	l, ok := sock.(line)
	if !ok {
		l = netpoll.NewStream(sock, true)
	}
	return &Conn{sock: sock, line: l, read: l}
}

// Over returns the connection over a Unix socket whose two ends have proved who they are.
func Over(sock *net.UnixConn) *Conn { return newConn(sock) }

// encrypt makes the handshake of TLS.
func (c *Conn) encrypt(begin func(net.Conn) *tls.Conn) error {
	c.out = newBatch(c.line)
	c.tls = begin(&below{Conn: c.sock, in: bufio.NewReaderSize(c.line, readAhead), out: c.out})
	if err := c.tls.Handshake(); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	c.read = c.tls
	c.out.hold()
	c.lead = make([]byte, recordSize)
	return nil
}

// Read implements io.Reader.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.read.Read(b)
	return n, c.explain(err)
}

// Write implements io.Writer.
func (c *Conn) Write(b []byte) (int, error) {
	c.queue.wrote(c.sock, len(b))
	if c.tls == nil {
		n, err := c.line.Write(b)
		return n, c.explain(err)
	}
	n, err := c.tls.Write(b)
	if err == nil {
		err = c.out.flush()
	}
	return n, c.explain(err)
}

// explain returns why the connection was given up in place of what that did to a call.
func (c *Conn) explain(err error) error {
	if err != nil {
		if given := c.given.Load(); given != nil {
			return *given
		}
	}
	return err
}

// GiveUp resets the connection: from now on reads and writes of this side return why. It has no
// effect on one that has ended.
func (c *Conn) GiveUp(why error) {
	if c.given.CompareAndSwap(nil, &why) {
		_ = c.Reset()
	}
}

// WriteTwo writes two slices one after the other, with as few system calls and records as
// that takes.
func (c *Conn) WriteTwo(head, body []byte) error {
	c.queue.wrote(c.sock, len(head)+len(body))
	if c.tls != nil {
		return c.explain(c.encryptTwo(head, body))
	}
	return c.explain(c.line.WriteTwo(head, body))
}

// encryptTwo fills one record with the end of the head and the beginning of the body, so
// that the others are full, too.
func (c *Conn) encryptTwo(head, body []byte) error {
	whole := len(head) / recordSize * recordSize
	n := copy(c.lead, head[whole:])
	m := copy(c.lead[n:], body)
	var err error
	for _, part := range [][]byte{head[:whole], c.lead[:n+m], body[m:]} {
		if err == nil && len(part) > 0 {
			_, err = c.tls.Write(part)
		}
	}
	if err == nil {
		err = c.out.flush()
	}
	return err
}

// SetDeadline is that of net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.sock.SetDeadline(t) }

// SetReadDeadline is that of net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.sock.SetReadDeadline(t) }

// SetWriteDeadline is that of net.Conn. What was written in part when it passes spoils the
// connection.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.sock.SetWriteDeadline(t) }

// CloseWrite ends what is written: the other side reads its end.
func (c *Conn) CloseWrite() error {
	if c.tls != nil {
		if err := errors.Join(c.tls.CloseWrite(), c.out.flush()); err != nil {
			return err
		}
	}
	for _, s := range socksOf(c.sock) {
		half, ok := s.(interface{ CloseWrite() error })
		if !ok {
			return errors.ErrUnsupported
		}
		if err := half.CloseWrite(); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connection after what was written.
func (c *Conn) Close() error {
	c.end()
	return c.sock.Close()
}

// Reset ends the connection at once, and for the other side with an error where the system
// can tell it.
func (c *Conn) Reset() error {
	c.end()
	_ = linger(c.sock, 0) // without it the other side sees an end in place of a reset
	return c.sock.Close()
}

// Kind returns "unix" or "direct".
func (c *Conn) Kind() string {
	if c.unix() {
		return "unix"
	}
	return "direct"
}

// Encrypted reports whether what is sent is encrypted.
func (c *Conn) Encrypted() bool { return c.tls != nil }

// unix reports whether the connection is a Unix socket.
func (c *Conn) unix() bool {
	_, ok := c.sock.(*net.UnixConn)
	return ok
}

// Addr returns the address at the other end; "" where that has none, as the one who has
// dialled a Unix socket.
func (c *Conn) Addr() string {
	if a := c.sock.RemoteAddr().String(); a != "@" {
		return a
	}
	return ""
}

// OnEnd has f called when this side ends the connection. It is called before the connection is used.
func (c *Conn) OnEnd(f func()) { c.onEnd = f }

// end tells once that the connection ends.
func (c *Conn) end() {
	if c.onEnd != nil {
		c.ending.Do(c.onEnd)
	}
}

// Target returns what this side has dialled; the zero Target at the side that has waited.
func (c *Conn) Target() Target { return c.target }

// Ends returns the IP addresses at both ends; they are not valid of a Unix socket.
func (c *Conn) Ends() (local, remote netip.Addr) {
	addr := func(a net.Addr) netip.Addr {
		t, ok := a.(*net.TCPAddr)
		if !ok {
			return netip.Addr{}
		}
		return t.AddrPort().Addr().Unmap()
	}
	return addr(c.sock.LocalAddr()), addr(c.sock.RemoteAddr())
}

// Progress is how far the bytes have come that were written to a TCP connection.
type Progress struct {
	Arrived uint64        // bytes that the other side's system has acknowledged
	Busy    time.Duration // for how long bytes were on their way
	// Stuck: the system sends the oldest bytes for the fourth time or more, some 1.4 s after the
	// first, and nothing was acknowledged meanwhile. A reader that pauses does not make a
	// connection stuck, as its system answers.
	Stuck bool
}

// Progress asks the system. Where that does not tell, all is zero.
func (c *Conn) Progress() Progress {
	var p Progress
	socks := socksOf(c.sock)
	p.Arrived, p.Busy = carriedOver(socks)
	for _, s := range socks {
		p.Stuck = p.Stuck || resent(s) >= stuckResends
	}
	return p
}

// stuckResends is how often the same bytes are sent again before a connection is stuck.
const stuckResends = 3

// below is the connection under TLS: it reads and writes more at a time than a record.
type below struct {
	net.Conn
	in  *bufio.Reader
	out *batch
}

// Read implements io.Reader.
func (b *below) Read(p []byte) (int, error) { return b.in.Read(p) }

// Write implements io.Writer.
func (b *below) Write(p []byte) (int, error) { return b.out.Write(p) }

// batch puts records together until flush. TLS may write a record of its own at any time,
// from the goroutine that reads.
type batch struct {
	to      io.Writer
	turn    chan struct{} // holds a token while somebody uses what follows
	pending []byte
	holding bool
	err     error // what failed; it stays
}

func newBatch(to io.Writer) *batch {
	return &batch{to: to, turn: make(chan struct{}, 1), pending: make([]byte, 0, batchSize)}
}

// hold ends the time in which all is written at once, which is that of the handshake.
func (b *batch) hold() {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	b.holding = true
}

// Write implements io.Writer.
func (b *batch) Write(p []byte) (int, error) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if len(b.pending)+len(p) > cap(b.pending) {
		b.send()
	}
	b.pending = append(b.pending, p...)
	if !b.holding {
		b.send()
	}
	return len(p), b.err
}

// flush writes what is held.
func (b *batch) flush() error {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	b.send()
	return b.err
}

// send is flush for who has the turn.
func (b *batch) send() {
	if b.err == nil && len(b.pending) > 0 {
		_, b.err = b.to.Write(b.pending)
	}
	b.pending = b.pending[:0]
}
