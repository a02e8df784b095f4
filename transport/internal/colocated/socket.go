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

	"github.com/elrun/elrun/transport/internal/direct"
)

const (
	// helloTime is how long whoever has connected may take to say hello: long, as processes of
	// a host with many of them wait for their turn.
	helloTime = 30 * time.Second
	// maxSilent is how many may be connected that have not said hello.
	maxSilent = 1024
	// firstPause and lastPause are those between attempts to connect while the other side's
	// queue is full, or after an error of accept that passes.
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

var (
	// ErrAbsent: nobody listens under that ID in this network namespace.
	ErrAbsent = errors.New("no such process on this host")
	// ErrNotServing: this side does not have its key yet.
	ErrNotServing = errors.New("there is no key yet")
)

// Socket is where a process takes in streams of others of its host. All methods are safe for
// concurrent use.
type Socket struct {
	id       string
	listener net.Listener
	number   atomic.Uint64 // of the last hello
	working  sync.WaitGroup
	done     chan struct{} // closed by Close

	mu      sync.Mutex
	closed  bool
	key     Key // set once, by Serve, before anything uses it
	serving bool
	silent  map[net.Conn]struct{} // have not said hello
	streams map[*Stream]struct{}  // that nobody has closed
	met     map[string]*window    // by ID of who has dialled
}

// Listen opens the socket of a process. Whoever dials waits until Serve is called.
func Listen(id string) (*Socket, error) {
	if id == "" || len(id) > MaxID {
		return nil, fmt.Errorf("colocated: listen: ID of %d bytes, want 1 to %d", len(id), MaxID)
	}
	l, err := direct.ListenAbstract(nameOf(id))
	if err != nil {
		return nil, fmt.Errorf("colocated: listen: %w", err)
	}
	return &Socket{id: id, listener: l, done: make(chan struct{}), silent: make(map[net.Conn]struct{}),
		streams: make(map[*Stream]struct{}), met: make(map[string]*window)}, nil
}

// nameOf returns the name of a process's socket.
func nameOf(id string) string { return "elrun-local-" + id }

// Taker says what becomes of streams that others open. Both functions are called in a
// goroutine for each stream, for which Close waits.
type Taker struct {
	// Admit says whether a stream of that kind is wanted of a process that has proved to hold
	// the key: 0, or why not.
	Admit func(peer string, kind byte) Code
	// Take gets the streams that are, and owns them.
	Take func(*Stream)
}

// Serve accepts streams from now on. A second call does nothing.
func (s *Socket) Serve(key Key, t Taker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.serving {
		return
	}
	s.key, s.serving = key, true
	s.working.Go(func() { s.accept(t) })
}

// isServing reports whether there is a key.
func (s *Socket) isServing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving
}

// accept takes connections until the listener is closed. A lack of descriptors passes.
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
		if !s.enter(sock) {
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

// pause waits; it returns an error if the socket is closed or ctx ends first.
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

// enter counts one that has not said hello; it reports false if there is no room.
func (s *Socket) enter(sock net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.silent) >= maxSilent {
		return false
	}
	s.silent[sock] = struct{}{}
	return true
}

// receive reads a hello, and returns the stream if all is right.
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
	delete(s.silent, sock)
	s.mu.Unlock()
	if err != nil {
		_ = st.Close()
		return nil, err
	}
	return st, nil
}

// answer answers the hello on a stream, which is then open. Who does not hold the key is told so,
// as it may reach this process in another way. The socket has room for an answer.
func (s *Socket) answer(st *Stream, b *[helloSize]byte, t Taker) error {
	h, err := decodeHello(b)
	if err != nil {
		return err
	}
	st.peer, st.kind = h.from, h.kind
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

// errReplay: a hello counts once.
var errReplay = errors.New("this hello has come before")

// admit takes up the care for the stream of one that holds the key, if its hello is new.
func (s *Socket) admit(st *Stream, number uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	w := s.met[st.peer]
	if w == nil {
		w = &window{}
		s.met[st.peer] = w
	}
	if !w.accept(number) {
		return errReplay
	}
	s.streams[st] = struct{}{}
	return nil
}

// Dial opens a stream to a process. Whether that takes it shows when the stream is read, or by
// Confirm. It ends with ErrAbsent at once where nobody listens.
func (s *Socket) Dial(ctx context.Context, to string, kind byte) (*Stream, error) {
	st, err := s.dial(ctx, to, kind)
	if err != nil {
		return nil, fmt.Errorf("colocated: dial %s: %w", to, err)
	}
	return st, nil
}

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
	b := h.encode(&s.key)
	if _, err := sock.Write(b[:]); err != nil { // there is room for it
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

// connect connects, also where the queue of the other side is full for a while.
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

// forget ends the care for a stream.
func (s *Socket) forget(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

// HangUp ends the streams with a process for which a function says so.
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

// Forget ends all streams with a process that does not come again.
func (s *Socket) Forget(peer string) {
	s.HangUp(peer, func(byte) bool { return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.met, peer)
}

// Close ends the listening and all streams, and waits until the Taker has returned everywhere.
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
