package netpoll

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/kernel"
)

// Stream reads and writes a socket or pipe, or what else is waited for by way of the network
// poller, and does not wake the runtime's monitor thread, as all other system calls do.
//
// That thread sleeps while no processor has anything to do. Once woken it looks after them
// every 20 us for fifty times, and then ever less often. A process that waits and goes on all
// the time, as in a collective call, has it awake all the time: in a virtual machine, where
// each time costs some 40 us, calls took 1.4 times as long.
//
// What only the monitor does has to wait while it sleeps, on one processor: to look at the
// network for a goroutine that computes, and to interrupt it. Timers wake it, so a process
// should have one that expires now and then.
//
// A Stream has one reader and one writer at a time. It ends with what it was made of.
type Stream struct {
	plain   io.ReadWriter
	raw     syscall.RawConn // nil if all is left to plain
	in, out request
}

// request is a call that is made as soon as the descriptor is ready. It is kept for the next
// one, as what is handed to the poller would be new memory each time.
type request struct {
	head, body []byte // of a read only body
	n          int
	err        error
	try        func(fd uintptr) bool // reports whether the call is over
	eager      *eagerness            // nil for one that waits as soon as it has to
	turn       time.Time             // when its own began
}

// most is how many bytes are read or written by one system call: in it the goroutine cannot
// be interrupted.
const most = 256 << 10

// NewStream returns a stream over a socket or one end of a pipe. Anything else is read and
// written as it is. An eager stream looks for what comes next again and again for a moment,
// while others have their turn, if that has paid of late: to wait and to be woken takes longer
// than it does between near hosts to answer.
func NewStream(over io.ReadWriter, eager bool) *Stream {
	s := &Stream{plain: over}
	if c, ok := over.(syscall.Conn); ok && kernel.HaveCalls {
		if r, err := c.SyscallConn(); err == nil {
			s.raw = r
		}
	}
	s.in.try, s.out.try = s.in.read, s.out.write
	if eager {
		s.in.eager = newEagerness()
	}
	return s
}

// read makes the call, and reports whether it is over. If not the poller calls again, once the
// descriptor is ready.
func (r *request) read(fd uintptr) bool {
	for {
		r.n, r.err = kernel.Read(fd, r.body)
		switch {
		case errors.Is(r.err, syscall.EINTR):
		case !errors.Is(r.err, syscall.EAGAIN):
			if r.eager != nil {
				r.eager.came()
			}
			return true
		case !r.lookAgain():
			return false
		}
	}
}

// lookAgain lets others have their turn, and reports whether to look after that at once.
func (r *request) lookAgain() bool {
	now := time.Now()
	if r.eager == nil || !r.eager.again(now.Sub(r.turn)) {
		return false
	}
	kernel.Yield()
	yielded := time.Now()
	runtime.Gosched()
	r.turn = time.Now()
	r.eager.offered(yielded.Sub(now), r.turn.Sub(yielded))
	return true
}

// write is like read.
func (r *request) write(fd uintptr) bool {
	for {
		r.n, r.err = kernel.WriteTwo(fd, r.head, r.body)
		if !errors.Is(r.err, syscall.EINTR) {
			return !errors.Is(r.err, syscall.EAGAIN)
		}
	}
}

// Read implements io.Reader.
func (s *Stream) Read(b []byte) (int, error) {
	if s.raw == nil || len(b) == 0 {
		return s.plain.Read(b)
	}
	r := &s.in
	r.body = b[:min(len(b), most)]
	err := s.made(r, "read", s.raw.Read)
	if err == nil && r.n == 0 {
		err = io.EOF
	}
	return r.n, err
}

// Write implements io.Writer.
func (s *Stream) Write(b []byte) (int, error) {
	if s.raw == nil {
		return s.plain.Write(b)
	}
	return s.write(nil, b)
}

// WriteTwo writes two slices one after the other, with as few system calls as that takes.
func (s *Stream) WriteTwo(head, body []byte) error {
	if s.raw == nil {
		_, err := s.plain.Write(append(head[:len(head):len(head)], body...))
		return err
	}
	_, err := s.write(head, body)
	return err
}

// write writes all of head and body.
func (s *Stream) write(head, body []byte) (written int, err error) {
	r := &s.out
	for err == nil && len(head)+len(body) > 0 {
		r.head = head[:min(len(head), most)]
		r.body = body[:min(len(body), most-len(r.head))]
		err = s.made(r, "write", s.raw.Write)
		written += r.n
		k := min(r.n, len(head))
		head, body = head[k:], body[r.n-k:]
	}
	return written, err
}

// made makes the call by one of the poller's functions, and returns its error.
func (s *Stream) made(r *request, name string, by func(func(fd uintptr) bool) error) error {
	r.n, r.err = 0, nil
	if r.eager != nil {
		r.eager.begin()
	}
	err := by(r.try)
	r.head, r.body = nil, nil // the caller's
	switch {
	case err != nil:
		r.n = 0
		return err
	case r.err != nil:
		return s.failed(name, os.NewSyscallError(name, r.err))
	}
	return nil
}

// failed says of which connection an error is, as package net does.
func (s *Stream) failed(name string, err error) error {
	c, ok := s.plain.(net.Conn)
	if !ok {
		return err
	}
	return &net.OpError{Op: name, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
