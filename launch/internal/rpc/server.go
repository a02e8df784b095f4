package rpc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// Method answers a call. Its context ends with the caller's context, the stream or the server.
// Several goroutines call it at once.
type Method func(ctx context.Context, request []byte) ([]byte, error)

// maxCalls bounds the concurrent calls of a stream. Further calls wait in the stream, so that the
// caller's writes block (backpressure).
const maxCalls = 256

// Server answers calls on streams. It is safe for concurrent use.
//
//	Serve      one goroutine for each listener, which accepts streams
//	serve      one for each stream, which reads its frames
//	answer     one for each running call, at most maxCalls on a stream
//	Close      ends all of them, and waits
type Server struct {
	program string   // greeting that callers must send: it identifies the program and the service
	methods []Method // by the method number of a call
	ctx     context.Context
	cancel  context.CancelFunc // ends ctx, and with it all calls
	work    sync.WaitGroup     // the goroutines of listeners and streams

	// mu makes track and Close exclude each other: after Close no listener or stream is opened.
	mu     sync.Mutex
	open   map[io.Closer]bool // listeners and streams, closed by Close
	closed bool
}

// NewServer returns a server for the methods of a program.
func NewServer(program string, methods []Method) *Server {
	s := &Server{program: program, methods: methods, open: make(map[io.Closer]bool)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve accepts streams from a listener, which the server owns. Each stream passes through secure,
// which authenticates the other end and may wrap the stream, as TLS does.
func (s *Server) Serve(l net.Listener, secure func(net.Conn) (net.Conn, error)) {
	if !s.track(l) {
		return
	}
	s.work.Go(func() {
		for {
			stream, err := l.Accept()
			if err != nil {
				return
			}
			s.start(stream, secure)
		}
	})
}

// ServeConn serves a stream, which the server owns. The other end of the stream is trusted.
func (s *Server) ServeConn(stream net.Conn) {
	s.start(stream, func(c net.Conn) (net.Conn, error) { return c, nil })
}

// start serves one stream in a goroutine. The deadline bounds the authentication and the hello, so
// that a client that connects and sends nothing holds no goroutine for long.
func (s *Server) start(stream net.Conn, secure func(net.Conn) (net.Conn, error)) {
	if !s.track(stream) {
		return
	}
	s.work.Go(func() {
		defer s.drop(stream)
		_ = stream.SetDeadline(time.Now().Add(helloPeriod))
		if checked, err := secure(stream); err == nil {
			s.serve(checked)
		}
	})
}

// track records a listener or stream for Close. After Close it closes c and returns false.
func (s *Server) track(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return false
	}
	s.open[c] = true
	return true
}

// drop closes a stream and removes it from open.
func (s *Server) drop(c io.Closer) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// serve reads and handles the frames of a stream until it ends. The end of the stream cancels its
// calls, because nobody waits for their answers, and serve waits for them.
func (s *Server) serve(stream net.Conn) {
	in := bufio.NewReaderSize(stream, readBuffer)
	if err := s.greeted(stream, in); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	c := &caller{server: s, ctx: ctx, stream: stream, slots: make(chan struct{}, maxCalls), running: make(map[uint64]context.CancelFunc)}
	defer c.work.Wait()
	defer cancel()
	for {
		f, err := readFrame(in)
		if err != nil || !c.handle(f) {
			return
		}
	}
}

// greeted exchanges hellos with the caller. A caller of another program gets a failure in place of
// the hello, so that it knows the reason and does not try again.
func (s *Server) greeted(stream net.Conn, in *bufio.Reader) error {
	f, err := readFrame(in)
	if err != nil {
		return err
	}
	if f.kind != kindHello {
		return errFrame
	}
	reply := frame{kind: kindHello}
	// The name of the program includes a digest, so another version is refused as well.
	if string(f.payload) != s.program {
		err = ErrRefused
		reply = frame{kind: kindFailure, payload: []byte("it runs another version of the program")}
	}
	if b, bad := reply.encode(); bad == nil {
		_, bad = stream.Write(b)
		if err == nil {
			err = bad
		}
	}
	if err != nil {
		return err
	}
	// Remove the deadline of the hello; calls have their own deadlines.
	return stream.SetDeadline(time.Time{})
}

// caller is the server's end of a stream.
type caller struct {
	server *Server
	ctx    context.Context // ends with the stream or the server
	slots  chan struct{}   // a semaphore with a token for each running call
	work   sync.WaitGroup

	writing sync.Mutex // held during a write, so that the frames of two answers do not mix
	stream  net.Conn

	// mu guards the fields below.
	mu      sync.Mutex
	running map[uint64]context.CancelFunc // cancels the running calls, by ID
}

// handle handles one frame. It returns false if the stream has to end.
func (c *caller) handle(f frame) bool {
	switch {
	case f.kind == kindCancel:
		c.mu.Lock()
		stop := c.running[f.id]
		c.mu.Unlock()
		if stop != nil {
			stop()
		}
		return true
	case f.kind != kindCall || int(f.method) >= len(c.server.methods):
		// A caller that sends this has another graph, or violates the protocol: end the whole
		// stream.
		return false
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return false
	}
	// The caller sends the remaining time, and no point in time, because clocks of hosts differ.
	timeout := time.Duration(f.timeout)
	if timeout == 0 { // the caller has no deadline
		timeout = math.MaxInt64
	}
	ctx, stop := context.WithTimeout(c.ctx, timeout)
	c.mu.Lock()
	c.running[f.id] = stop
	c.mu.Unlock()
	c.work.Go(func() {
		c.answer(ctx, f)
		stop()
		c.mu.Lock()
		delete(c.running, f.id)
		c.mu.Unlock()
		<-c.slots
	})
	return true
}

// answer carries out a call and sends its answer or failure. A result that is too long for a frame
// is a failure of the call, not of the stream. After a failed write the stream is closed: a part of
// a frame may have been sent.
func (c *caller) answer(ctx context.Context, f frame) {
	result, err := c.server.methods[f.method](ctx, f.payload)
	reply := frame{kind: kindAnswer, id: f.id, payload: result}
	if err != nil {
		reply = frame{kind: kindFailure, id: f.id, payload: clip(err.Error())}
	}
	b, err := reply.encode()
	if err != nil {
		b, _ = frame{kind: kindFailure, id: f.id, payload: []byte(fmt.Sprintf("the result has %v", err))}.encode()
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.stream.Write(b); err != nil {
		_ = c.stream.Close()
	}
}

// maxText bounds the text of an error, in bytes.
const maxText = 4 << 10

// clip cuts the text of an error to maxText bytes.
func clip(text string) []byte { return []byte(text[:min(maxText, len(text))]) }

// Close ends all calls, streams and listeners, and returns when all methods have returned. Streams
// end first: the error of a method that the end interrupts is not its answer.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
}
