package mem

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/elrun/elrun/transport/mesh"
)

// pipeSize is the number of bytes that a pipe buffers before a writer waits (backpressure).
const pipeSize = 64 << 10

// pipe carries bytes in one direction. It has one reader, one writer and no goroutine of its own.
// The reader and the writer wait on one condition. The condition is broadcast, because at most two
// goroutines and two timers use it. Unlike net.Pipe a pipe has a buffer, as a socket has: the
// session protocol relies on writes of short frames that do not wait for a reader.
type pipe struct {
	// mu guards the fields below.
	mu sync.Mutex
	// A Cond has no timeout: deadlines are timers that set over and broadcast.
	moved *sync.Cond // broadcast after each change of the fields below
	buf   []byte     // buf[first:] is unread
	first int
	end   error // error of reads after the bytes in buf; nil while open
	stuck error // error of writes; nil while open

	reading, writing deadline
}

// deadline limits how long one side may wait.
type deadline struct {
	over  bool
	timer *time.Timer
	// turn counts the calls of set, so that the timer of an earlier call has no effect.
	turn int
}

// newPipe returns an empty pipe without deadlines.
func newPipe() *pipe {
	p := &pipe{}
	p.moved = sync.NewCond(&p.mu)
	return p
}

// read implements io.Reader.
func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		// The deadline is checked first: after a deadline a read fails even if bytes are buffered,
		// as on a socket.
		case p.reading.over:
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		// Bytes that were written before the end are still read.
		case p.first < len(p.buf):
			n := copy(b, p.buf[p.first:])
			// An empty buffer is filled from its beginning again, so that its memory is reused.
			if p.first += n; p.first == len(p.buf) {
				p.buf, p.first = p.buf[:0], 0
			}
			p.moved.Broadcast()
			return n, nil
		case p.end != nil:
			return 0, p.end
		}
		p.moved.Wait()
	}
}

// write writes head and then body. It returns the number of bytes written of both.
func (p *pipe) write(head, body []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for {
		switch {
		case p.stuck != nil:
			return done, p.stuck
		case p.writing.over:
			return done, os.ErrDeadlineExceeded
		}
		// No other writer can come between head and body: the pipe has one writer.
		n := p.takeLocked(head)
		head = head[n:]
		m := 0
		if len(head) == 0 {
			m = p.takeLocked(body)
			body = body[m:]
		}
		if done += n + m; n+m > 0 {
			p.moved.Broadcast()
		}
		if len(head)+len(body) == 0 {
			return done, nil
		}
		p.moved.Wait()
	}
}

// takeLocked appends as much of b as the pipe has room for, and returns the number of bytes.
func (p *pipe) takeLocked(b []byte) int {
	n := min(len(b), pipeSize-(len(p.buf)-p.first))
	// Moving the unread bytes to the front is cheaper than a larger buffer: they are at most
	// pipeSize.
	if p.first > 0 && len(p.buf)+n > cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, p.buf[p.first:])]
		p.first = 0
	}
	p.buf = append(p.buf, b[:n]...)
	return n
}

// change calls f under the lock and wakes the waiting reader and writer.
func (p *pipe) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.moved.Broadcast()
}

// set sets a deadline of the pipe; the zero time removes it.
func (p *pipe) set(d *deadline, t time.Time) {
	p.change(func() {
		if d.timer != nil {
			d.timer.Stop()
			d.timer = nil
		}
		d.turn++
		turn, left := d.turn, time.Until(t)
		if d.over = !t.IsZero() && left <= 0; d.over || t.IsZero() {
			return
		}
		d.timer = time.AfterFunc(left, func() {
			p.change(func() { d.over = d.over || d.turn == turn })
		})
	})
}

// close makes reads fail with end, after the bytes in buf, and writes with stuck. An earlier error
// stays, except that end replaces io.EOF.
func (p *pipe) close(end, stuck error) {
	p.change(func() {
		// A reset after CloseWrite must be visible to the reader.
		if p.end == nil || p.end == io.EOF {
			p.end = end
		}
		p.stuck = cmp.Or(p.stuck, stuck)
		for _, d := range []*deadline{&p.reading, &p.writing} {
			if d.timer != nil {
				d.timer.Stop()
			}
		}
	})
}

// drop discards the unread bytes.
func (p *pipe) drop() { p.change(func() { p.buf, p.first = nil, 0 }) }

// errPipe means that the other side of the stream does not read any more.
var errPipe = errors.New("the other side has closed the stream")

// stream is one end of two pipes. It implements mesh.Stream.
type stream struct {
	in, out *pipe
	*wire
	self int // index of this end in wire.ends
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) { return s.in.read(b) }

// Write implements io.Writer.
func (s *stream) Write(b []byte) (int, error) { return s.out.write(b, nil) }

// WriteTwo implements mesh.TwoWriter.
func (s *stream) WriteTwo(head, body []byte) error {
	_, err := s.out.write(head, body)
	return err
}

// CloseWrite implements mesh.Stream.
func (s *stream) CloseWrite() error {
	s.out.close(io.EOF, net.ErrClosed)
	return nil
}

// Close implements mesh.Stream.
func (s *stream) Close() error {
	s.out.close(io.EOF, net.ErrClosed)
	s.in.close(net.ErrClosed, errPipe)
	s.in.drop()
	s.forget()
	return nil
}

// Reset implements mesh.Stream. If the member of this end has left, Reset has the effect of the end
// of a process: the other end can still read the bytes that were written before.
func (s *stream) Reset() error {
	s.out.close(mesh.ErrReset, net.ErrClosed)
	s.in.close(net.ErrClosed, mesh.ErrReset)
	s.in.drop()
	if !s.forget() {
		s.out.drop()
	}
	return nil
}

// SetReadDeadline implements mesh.Stream.
func (s *stream) SetReadDeadline(t time.Time) error {
	s.in.set(&s.in.reading, t)
	return nil
}

// SetWriteDeadline implements mesh.Stream.
func (s *stream) SetWriteDeadline(t time.Time) error {
	s.out.set(&s.out.writing, t)
	return nil
}
