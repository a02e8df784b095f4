package colocated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/netpoll"
	"github.com/elrun/elrun/transport/internal/direct"
)

const (
	// helloTime is how long a connection may take to send its hello. It is long, as the processes
	// of a crowded host wait for a processor.
	helloTime = 30 * time.Second
	// maxSilent is the number of connections that have not sent their hello. It is the number of
	// processes of a large host that may connect at the same moment.
	maxSilent = 1024
	// firstPause and lastPause are the bounds of the pause between attempts to connect while the
	// other side's queue is full. lastPause is also the pause after a temporary error of Accept.
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

var (
	// ErrAbsent means that no process listens under that ID in this network namespace.
	ErrAbsent = errors.New("no such process on this host")
	// ErrNotServing means that this side does not have its key yet.
	ErrNotServing = errors.New("there is no key yet")
)

// Socket accepts the streams of other processes of the host, and dials them. All methods are safe
// for concurrent use.
//
// mu guards what Close has to end: connections without a hello (silent) and open streams. A
// connection leaves silent when its hello was processed, and is in streams from the moment that the
// hello was accepted, so there is no gap in which Close would miss it.
type Socket struct {
	id       string
	listener net.Listener
	number   atomic.Uint64 // number of the last hello
	working  sync.WaitGroup
	done     chan struct{} // closed by Close

	// mu guards the fields below.
	mu      sync.Mutex
	closed  bool
	key     Key // set once, by Serve, before any use
	serving bool
	silent  map[net.Conn]struct{} // accepted connections without a hello
	streams map[*Stream]struct{}  // open streams
	windows map[string]*window    // replay windows, by the dialler's ID
}

// Listen opens the socket of a process with an ID of 1 to MaxID bytes. Connections wait until Serve
// is called. Listen fails if a process of this host listens with the same ID.
func Listen(id string) (*Socket, error) {
	if id == "" || len(id) > MaxID {
		return nil, fmt.Errorf("colocated: listen: ID of %d bytes, want 1 to %d", len(id), MaxID)
	}
	// An abstract name ends with its process. So a killed process leaves no file, and a second
	// process with the same ID fails here.
	l, err := direct.ListenAbstract(nameOf(id))
	if err != nil {
		return nil, fmt.Errorf("colocated: listen: %w", err)
	}
	return &Socket{id: id, listener: l, done: make(chan struct{}), silent: make(map[net.Conn]struct{}),
		streams: make(map[*Stream]struct{}), windows: make(map[string]*window)}, nil
}

// nameOf returns the name of a process's socket.
func nameOf(id string) string { return "elrun-local-" + id }

// Taker handles the streams that others open. Both functions are called in a goroutine per stream,
// for which Close waits.
type Taker struct {
	// Admit returns 0 if a stream of that kind is accepted, or the code of the refusal. The peer
	// has proven that it holds the key.
	Admit func(peer string, kind byte) Code
	// Take gets the accepted streams, and owns them.
	Take func(*Stream)
}

// Serve accepts streams from now on. A second call has no effect.
func (s *Socket) Serve(key Key, t Taker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A second key cannot replace the first: streams that are open were proven with the first.
	if s.closed || s.serving {
		return
	}
	s.key, s.serving = key, true
	s.working.Go(func() { s.accept(t) })
}

// isServing reports whether the key is set.
func (s *Socket) isServing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving
}

// accept accepts connections until the listener is closed. It retries after errors such as a lack
// of file descriptors.
func (s *Socket) accept(t Taker) {
	for {
		sock, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if s.pause(context.Background(), lastPause) != nil {
				return
			}
			continue
		}
		// The dialler sees the end of the connection, and dials again.
		if !s.addSilent(sock) {
			_ = sock.Close()
			continue
		}
		s.working.Go(func() {
			if st, err := s.receive(sock.(*net.UnixConn), t); err == nil {
				t.Take(st)
			}
		})
	}
}

// pause waits for d. It fails if the socket is closed or ctx ends first.
func (s *Socket) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.done:
		return net.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// addSilent counts a connection without a hello; false if there are too many.
func (s *Socket) addSilent(sock net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.silent) >= maxSilent {
		return false
	}
	s.silent[sock] = struct{}{}
	return true
}

// receive reads the hello of a connection, and returns the stream if it is accepted.
func (s *Socket) receive(sock *net.UnixConn, t Taker) (*Stream, error) {
	var b [helloSize]byte
	err := sock.SetDeadline(time.Now().Add(helloTime))
	if err == nil {
		err = direct.CheckUser(sock)
	}
	if err == nil {
		_, err = io.ReadFull(sock, b[:])
	}
	st := s.newStream(sock)
	if err == nil {
		err = s.answer(st, &b, t)
	}
	if err == nil {
		err = sock.SetDeadline(time.Time{})
	}
	s.mu.Lock()
	// An accepted stream is in streams by now. So Close finds the connection in silent or in
	// streams.
	delete(s.silent, sock)
	s.mu.Unlock()
	if err != nil {
		_ = st.Close()
		return nil, err
	}
	return st, nil
}

// answer checks a hello and sends the answer; with a nil error the stream is open. A dialler
// without the key gets the answer wrongKey, so that it can try another way to reach this process.
// The write does not block: the socket's buffer has room for an answer.
func (s *Socket) answer(st *Stream, b *[helloSize]byte, t Taker) error {
	h, err := decodeHello(b)
	if err != nil {
		return err
	}
	st.peer, st.kind = h.from, h.kind
	// wrongKey remains the answer if the hello is for another ID, or if its MAC is wrong.
	code := wrongKey
	if h.to == s.id && proven(&s.key, b) {
		if err := s.admit(st, h.number); err != nil {
			return err
		}
		code = t.Admit(h.from, h.kind)
	}
	answer := encodeAnswer(&s.key, b, code)
	if _, err := st.sock.Write(answer[:]); err != nil {
		return err
	}
	if code != 0 {
		return &RefusedError{Code: code}
	}
	return nil
}

// errReplay means that the hello was seen before.
var errReplay = errors.New("this hello was received before")

// admit adds the stream of a dialler that holds the key, if its hello is new.
func (s *Socket) admit(st *Stream, number uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	w := s.windows[st.peer]
	if w == nil {
		w = &window{}
		s.windows[st.peer] = w
	}
	// A process that has recorded a hello cannot open a second stream with it.
	if !w.accept(number) {
		return errReplay
	}
	s.streams[st] = struct{}{}
	return nil
}

// Dial opens a stream to a process. Confirm or the first read shows whether the process accepts it.
// Dial fails at once with ErrAbsent if no process listens.
func (s *Socket) Dial(ctx context.Context, to string, kind byte) (*Stream, error) {
	st, err := s.dial(ctx, to, kind)
	if err != nil {
		return nil, fmt.Errorf("colocated: dial %s: %w", to, err)
	}
	return st, nil
}

// dial does the work of Dial.
func (s *Socket) dial(ctx context.Context, to string, kind byte) (*Stream, error) {
	if to == "" || len(to) > MaxID {
		return nil, fmt.Errorf("%w: ID of %d bytes", ErrAbsent, len(to))
	}
	if !s.isServing() {
		return nil, ErrNotServing
	}
	sock, err := s.connect(ctx, to)
	if err != nil {
		return nil, err
	}
	if err := direct.CheckUser(sock); err != nil {
		_ = sock.Close()
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	h := hello{kind: kind, from: s.id, to: to, number: s.number.Add(1)}
	// The hello names both IDs, so that another process cannot pass it on to a third.
	b := h.encode(&s.key)
	if _, err := sock.Write(b[:]); err != nil { // the buffer has room for it
		_ = sock.Close()
		return nil, err
	}
	st := s.newStream(sock)
	st.peer, st.kind, st.asked = to, kind, &b
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = sock.Close()
		return nil, net.ErrClosed
	}
	s.streams[st] = struct{}{}
	return st, nil
}

// connect connects to the socket of a process. It retries while the queue of the listener is full,
// for which the kernel reports EAGAIN at once instead of waiting. A refused connection means that
// no process has the name; there is no file that could be left over.
func (s *Socket) connect(ctx context.Context, to string) (*net.UnixConn, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		sock, err := new(net.Dialer).DialContext(ctx, "unix", "@"+nameOf(to))
		switch {
		case err == nil:
			return sock.(*net.UnixConn), nil
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil, fmt.Errorf("%w: %w", ErrAbsent, err)
		case !errors.Is(err, syscall.EAGAIN):
			return nil, err
		}
		if err := s.pause(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// newStream returns the stream over a connection. It is in streams once it is open.
func (s *Socket) newStream(sock *net.UnixConn) *Stream {
	return &Stream{sock: sock, bytes: netpoll.NewStream(sock, false), key: &s.key, ended: s.forget}
}

// forget removes a stream, which is about to end. Stream.Close calls it, possibly more than once.
func (s *Socket) forget(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

// HangUp ends the streams with a process whose kind the function which selects.
func (s *Socket) HangUp(peer string, which func(kind byte) bool) {
	s.mu.Lock()
	var all []*Stream
	for st := range s.streams {
		if st.peer == peer && which(st.kind) {
			all = append(all, st)
		}
	}
	s.mu.Unlock()
	for _, st := range all {
		_ = st.Close()
	}
}

// Forget ends all streams with a process that will not come again, and forgets its replay window.
func (s *Socket) Forget(peer string) {
	s.HangUp(peer, func(byte) bool { return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.windows, peer)
}

// Close closes the listener and all streams, and waits for all calls of the Taker.
func (s *Socket) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	for sock := range s.silent {
		_ = sock.Close()
	}
	// Streams call forget when they are closed, so Close takes the whole set first.
	all := s.streams
	s.streams = make(map[*Stream]struct{})
	s.mu.Unlock()
	err := s.listener.Close()
	for st := range all {
		_ = st.sock.Close()
	}
	s.working.Wait()
	return err
}
