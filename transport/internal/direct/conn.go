package direct

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/internal/netpoll"
)

const (
	// recordSize is the longest payload of a TLS record, in bytes.
	recordSize = 16 << 10
	// readAhead is the size of the buffer for reads of the encrypted stream, in bytes.
	readAhead = 256 << 10
	// batchSize is the size of the buffer for writes of the encrypted stream, in bytes.
	batchSize = 256 << 10
)

// Conn is a connection with an authenticated peer. It allows one reader and one writer at a time;
// the other methods may be called meanwhile.
type Conn struct {
	sock  net.Conn  // a socket or a bundle
	line  line      // reads and writes the bytes of sock
	read  io.Reader // line, or tls
	tls   *tls.Conn // nil without encryption
	out   *batch    // between tls and line
	lead  []byte    // buffer for the first record of a frame; nil without encryption
	queue queue

	// target is the target that this side has dialled; zero at the accepting side.
	target Target
	// cause is the reason why this side has given the connection up; nil if it has not.
	cause  atomic.Pointer[error]
	ending sync.Once
	onEnd  func() // may be nil
}

// line carries the bytes of a connection: a netpoll.Stream over one socket, or a bundle.
type line interface {
	io.ReadWriter
	WriteTwo(head, body []byte) error
}

// newConn returns the Conn over a connected socket, or over a bundle.
func newConn(sock net.Conn) *Conn {
	l, ok := sock.(line)
	if !ok {
		l = netpoll.NewStream(sock, true)
	}
	return &Conn{sock: sock, line: l, read: l}
}

// Sleep makes reads sleep at once, without busy-polling. It is for connections that wait for long.
// It must be called before the connection is used, which has no encryption.
func (c *Conn) Sleep() {
	c.line = netpoll.NewStream(c.sock, false)
	c.read = c.line
}

// encrypt makes the TLS handshake. Below TLS a buffered reader and a batch take the place of the
// socket, as TLS itself makes a system call for each record of 16 KiB.
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
	c.queue.count(c.sock, len(b))
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

// explain replaces err, the effect of GiveUp on a call, by the reason given to GiveUp.
func (c *Conn) explain(err error) error {
	if err != nil {
		if given := c.cause.Load(); given != nil {
			return *given
		}
	}
	return err
}

// GiveUp resets the connection. From then on reads and writes of this side return why. It has no
// effect on a connection that has ended.
func (c *Conn) GiveUp(why error) {
	if c.cause.CompareAndSwap(nil, &why) {
		_ = c.Reset()
	}
}

// WriteTwo writes head and then body, with as few system calls and TLS records as possible.
func (c *Conn) WriteTwo(head, body []byte) error {
	c.queue.count(c.sock, len(head)+len(body))
	if c.tls != nil {
		return c.explain(c.encryptTwo(head, body))
	}
	return c.explain(c.line.WriteTwo(head, body))
}

// encryptTwo puts the end of head and the beginning of body into one record, so that the records of
// body are full.
func (c *Conn) encryptTwo(head, body []byte) error {
	// The end of head that fills no record is joined with the beginning of body.
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

// SetDeadline implements the method of net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.sock.SetDeadline(t) }

// SetReadDeadline implements the method of net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.sock.SetReadDeadline(t) }

// SetWriteDeadline implements the method of net.Conn. A write that it interrupts may leave a
// partial frame, after which the connection cannot be used.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.sock.SetWriteDeadline(t) }

// CloseWrite ends the bytes of this side: the other side reads io.EOF after them.
func (c *Conn) CloseWrite() error {
	if c.tls != nil {
		// TLS ends its stream by an alert of its own (close_notify), so that a cut is not taken for
		// the end.
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

// Close ends the connection. Bytes that were written are still delivered.
func (c *Conn) Close() error {
	c.end()
	return c.sock.Close()
}

// Reset ends the connection at once, and discards unsent bytes. The other side gets an error where
// the system can report one.
func (c *Conn) Reset() error {
	c.end()
	_ = linger(c.sock, 0) // without it the other side would read io.EOF
	return c.sock.Close()
}

// Kind returns "unix" or "direct".
func (c *Conn) Kind() string {
	if isUnix(c.sock) {
		return "unix"
	}
	return "direct"
}

// Encrypted reports whether the connection uses TLS.
func (c *Conn) Encrypted() bool { return c.tls != nil }

// isUnix reports whether a connection is a Unix socket.
func isUnix(sock net.Conn) bool {
	_, ok := sock.(*net.UnixConn)
	return ok
}

// Addr returns the address of the other end. It is "" if the other end has dialled a Unix socket,
// because that end has no address.
func (c *Conn) Addr() string {
	if a := c.sock.RemoteAddr().String(); a != "@" {
		return a
	}
	return ""
}

// OnEnd makes f be called once, when this side ends the connection. It must be called before the
// connection is used.
func (c *Conn) OnEnd(f func()) { c.onEnd = f }

// end calls onEnd, once.
func (c *Conn) end() {
	if c.onEnd != nil {
		c.ending.Do(c.onEnd)
	}
}

// Target returns the target that this side has dialled; the zero Target at the side that has
// waited.
func (c *Conn) Target() Target { return c.target }

// Ends returns the IP addresses of both ends. They are invalid for a Unix socket.
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

// Stuck reports whether the kernel has retransmitted the oldest bytes stuckResends times or more,
// some 1.4 s after it first sent them, and nothing was acknowledged meanwhile. A reader that pauses
// does not make a connection stuck, as its kernel still answers. It is false where the system does
// not tell, and for Unix sockets.
func (c *Conn) Stuck() bool {
	return slices.ContainsFunc(socksOf(c.sock), func(s net.Conn) bool { return resent(s) >= stuckResends })
}

// stuckResends is the number of retransmissions of the same bytes from which a connection is stuck.
const stuckResends = 3

// below is the connection under TLS. It reads and writes more bytes per system call than one
// record. Deadlines and addresses are the embedded connection's.
type below struct {
	net.Conn
	in  *bufio.Reader
	out *batch
}

// Read implements io.Reader.
func (b *below) Read(p []byte) (int, error) { return b.in.Read(p) }

// Write implements io.Writer.
func (b *below) Write(p []byte) (int, error) { return b.out.Write(p) }

// batch collects TLS records until flush. TLS may also write a record from the goroutine that
// reads, at any time.
type batch struct {
	to io.Writer
	// lock is the lock for the fields below: it holds a token while they are in use.
	lock    chan struct{}
	pending []byte // records not written yet
	holding bool   // false during the handshake, when records are written at once
	// err is the first error of a write. Later writes return it, too.
	err error
}

// newBatch returns a batch that writes records to the writer to at once, until hold is called.
func newBatch(to io.Writer) *batch {
	return &batch{to: to, lock: make(chan struct{}, 1), pending: make([]byte, 0, batchSize)}
}

// hold ends the handshake: from now on records are collected until flush.
func (b *batch) hold() {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	b.holding = true
}

// Write implements io.Writer.
func (b *batch) Write(p []byte) (int, error) {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	if len(b.pending)+len(p) > cap(b.pending) {
		b.send()
	}
	b.pending = append(b.pending, p...)
	if !b.holding {
		b.send()
	}
	return len(p), b.err
}

// flush writes the collected records.
func (b *batch) flush() error {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	b.send()
	return b.err
}

// send is flush for callers that hold the lock. After an error the records are dropped, and every
// later call returns the error.
func (b *batch) send() {
	if b.err == nil && len(b.pending) > 0 {
		_, b.err = b.to.Write(b.pending)
	}
	b.pending = b.pending[:0]
}
