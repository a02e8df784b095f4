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

// Stream reads and writes a socket or pipe, or another descriptor of the runtime's network poller.
// Its system calls do not wake the runtime's monitor thread (sysmon), as ordinary system calls do.
//
// The monitor thread sleeps while all processors are idle. Once woken, it checks the processors
// fifty times every 20 us, and then less and less often. A process that alternates between waiting
// and short work, as in a collective call, would keep the monitor awake all the time. In a virtual
// machine each check costs about 40 us, and collective calls take 1.4 times as long.
//
// While the monitor sleeps, no other thread does its two tasks: to poll the network, and to preempt
// a goroutine that computes. A process with one processor needs both tasks. Timers wake the
// monitor, so such a process should have a timer that expires now and then.
//
// A Stream has one reader and one writer at a time. It does not own its connection, and has no
// Close: its calls end with the connection.
type Stream struct {
	plain   io.ReadWriter
	raw     syscall.RawConn // nil if plain does all the work
	in, out request
}

// request is a system call that is tried whenever the descriptor is ready. A Stream has one request
// per direction and reuses it, so that calls do not allocate.
type request struct {
	head, body []byte // buffers of the caller; a read has only body
	n          int    // number of transferred bytes
	err        error
	try        func(fd uintptr) bool // makes the call, and reports whether it is finished
	poller     *busyPoller           // busy-polling; nil to block at once
	pollStart  time.Time             // start of the present poll
}

// maxTransfer is the greatest number of bytes of a system call: the goroutine cannot be preempted
// during the call.
const maxTransfer = 256 << 10

// NewStream returns a Stream over a socket or one end of a pipe. Any other value is used through
// its own Read and Write methods. If busyPoll is set, the Stream busy-polls for a short time before
// it blocks, as long as recent messages have arrived during busy-polling. Between near hosts a
// message often arrives sooner than a sleeping thread is woken. Between polls other goroutines and
// processes may run.
func NewStream(over io.ReadWriter, busyPoll bool) *Stream {
	s := &Stream{plain: over}
	if c, ok := over.(syscall.Conn); ok && kernel.HaveCalls {
		if r, err := c.SyscallConn(); err == nil {
			s.raw = r
		}
	}
	s.in.try, s.out.try = s.in.read, s.out.write
	if busyPoll {
		s.in.poller = newBusyPoller()
	}
	return s
}

// read makes the read call, and reports whether it is finished. If not, the poller calls read again
// once the descriptor is ready.
func (r *request) read(fd uintptr) bool {
	for {
		r.n, r.err = kernel.Read(fd, r.body)
		switch {
		case errors.Is(r.err, syscall.EINTR):
		// Data, the end, or an error: the request is finished.
		case !errors.Is(r.err, syscall.EAGAIN):
			if r.poller != nil {
				r.poller.recordHit()
			}
			return true
		case !r.pollAgain():
			return false
		}
	}
}

// pollAgain gives other processes and goroutines a turn, and reports whether to poll once more.
func (r *request) pollAgain() bool {
	now := time.Now()
	if r.poller == nil || !r.poller.pollAgain(now.Sub(r.pollStart)) {
		return false
	}
	kernel.Yield()
	yielded := time.Now()
	runtime.Gosched()
	r.pollStart = time.Now()
	r.poller.recordYield(yielded.Sub(now), r.pollStart.Sub(yielded))
	return true
}

// write makes the write call, and reports whether it is finished, as read does.
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
	r.body = b[:min(len(b), maxTransfer)]
	err := s.made(r, "read", s.raw.Read)
	// read(2) returns 0 bytes at the end of a stream.
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

// WriteTwo writes two slices, one after the other, with as few system calls as possible. It returns
// an error unless all bytes were written.
func (s *Stream) WriteTwo(head, body []byte) error {
	if s.raw == nil {
		_, err := s.plain.Write(append(head[:len(head):len(head)], body...))
		return err
	}
	_, err := s.write(head, body)
	return err
}

// write writes all of head and body, and returns the number of written bytes.
func (s *Stream) write(head, body []byte) (written int, err error) {
	r := &s.out
	for err == nil && len(head)+len(body) > 0 {
		r.head = head[:min(len(head), maxTransfer)]
		r.body = body[:min(len(body), maxTransfer-len(r.head))]
		err = s.made(r, "write", s.raw.Write)
		written += r.n
		k := min(r.n, len(head))
		head, body = head[k:], body[r.n-k:]
	}
	return written, err
}

// made runs the request r by the function by of the network poller, Read or Write of the RawConn,
// and returns the error. The poller blocks the goroutine until the descriptor is ready, and calls
// r.try again.
func (s *Stream) made(r *request, name string, by func(func(fd uintptr) bool) error) error {
	r.n, r.err = 0, nil
	if r.poller != nil {
		r.poller.startMessage()
	}
	err := by(r.try)
	r.head, r.body = nil, nil // release the caller's buffers
	switch {
	case err != nil:
		r.n = 0
		return err
	case r.err != nil:
		return s.failed(name, os.NewSyscallError(name, r.err))
	}
	return nil
}

// failed adds the addresses of the connection to an error, as package net does, so that callers can
// handle the errors of both in the same way.
func (s *Stream) failed(name string, err error) error {
	c, ok := s.plain.(net.Conn)
	if !ok {
		return err
	}
	return &net.OpError{Op: name, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
