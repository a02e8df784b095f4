package p2p_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/elastic"
)

// hole is a TCP proxy to a host that can become a black hole, as in a network that drops packets:
// open connections stay, and new ones get no answer.
type hole struct {
	listener net.Listener
	to       string
	working  sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	filled chan struct{} // closed while bytes pass; bytes of old connections stay lost
}

// dig returns a hole in front of the host with that multiaddr, and the hole's own multiaddr.
func dig(t testing.TB, addr string) (*hole, string) {
	t.Helper()
	a, err := multiaddr.NewMultiaddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	to, err := manet.ToNetAddr(a)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &hole{listener: l, to: to.String(), filled: make(chan struct{})}
	close(w.filled)
	w.working.Go(w.accept)
	t.Cleanup(w.close)
	own, err := manet.FromNetAddr(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return w, own.String()
}

// accept connects inbound connections with the host.
func (h *hole) accept() {
	for {
		in, err := h.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", h.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		h.mu.Lock()
		h.conns = append(h.conns, in, out)
		filled := h.filled
		h.mu.Unlock()
		h.working.Go(func() { h.copy(out, in, filled) })
		h.working.Go(func() { h.copy(in, out, filled) })
	}
}

// copy forwards the bytes of a connection once filled is closed: the hole's channel when the connection
// was made. When the hole has opened again, copy drops the bytes.
func (h *hole) copy(to, from net.Conn, filled chan struct{}) {
	<-filled
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		h.mu.Lock()
		lost := h.filled != filled
		h.mu.Unlock()
		if err == nil && !lost {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			if !lost {
				_ = to.Close()
			}
			return
		}
	}
}

// open drops all bytes from now on, and fill lets new connections through.
func (h *hole) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.filled = make(chan struct{})
}

func (h *hole) fill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.filled)
}

func (h *hole) close() {
	_ = h.listener.Close()
	h.mu.Lock()
	select {
	case <-h.filled:
	default:
		close(h.filled) // a failed test may not have called fill
	}
	for _, c := range h.conns {
		_ = c.Close()
	}
	h.mu.Unlock()
	h.working.Wait()
}

// Send gives up a connection without acknowledgements within a second or two: it fails, and the
// peer is reported down. When the network works again the next Send arrives at once.
func TestBlackHole(t *testing.T) {
	t.Parallel() // it waits
	hs, v := hosts(t, 2, configs()["tls"])
	way, addr := dig(t, hs[1].Addrs()[0])
	if err := hs[0].Introduce([]elastic.Member{{ID: hs[1].ID(), Addrs: []string{addr}}}); err != nil {
		t.Fatal(err)
	}
	introduce(t, hs[1:], v)
	send(t, hs, 0, 1, "before")
	wantEvents(t, hs, 0, "1 up")
	wantEvents(t, hs, 1, "0 up", "0 says before")
	way.open()
	began := time.Now()
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	beats := 0
	for ; ; beats++ {
		<-beat.C
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := hs[0].Send(ctx, hs[1].ID(), []byte("lost"))
		cancel()
		if err != nil {
			break
		}
		if time.Since(began) > long {
			t.Fatal("Send goes on without an answer")
		}
	}
	wantEvents(t, hs, 0, "1 down")
	t.Logf("given up after %v and %d messages", time.Since(began), beats)
	way.fill()
	began = time.Now()
	send(t, hs, 0, 1, "after")
	t.Logf("got through after %v", time.Since(began))
	for e := event(t, hs, 1); e != "0 says after"; {
		e = event(t, hs, 1)
	}
}
