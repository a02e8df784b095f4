package p2p

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// keyed starts a host for each word, such as "auto key" or "p2p": the first part is the path, the
// second the host key.
func keyed(t testing.TB, words ...string) ([]*Host, elastic.View) {
	t.Helper()
	var hs []*Host
	v := elastic.View{Epoch: 1}
	for i, word := range words {
		path, key, _ := strings.Cut(word, " ")
		cfg := Config{Job: "test", Path: path, ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}}
		if key != "" {
			cfg.HostKey = append([]byte(key), make([]byte, HostKeySize-len(key))...)
		}
		h, err := Listen(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		hs = append(hs, h)
		v.Members = append(v.Members, elastic.Member{ID: h.ID(), Index: i, Addrs: h.Addrs()})
	}
	return hs, v
}

// libp2pConns returns the number of libp2p connections of the hosts.
func libp2pConns(hs []*Host) (n int) {
	for _, h := range hs {
		n += len(h.conns.swarm.Conns())
	}
	return n
}

// Hosts with a common key enter views, send data and control messages and make requests without any
// libp2p connection. Hosts without a common key use libp2p for all of these.
func TestLocal(t *testing.T) {
	for name, c := range map[string]struct {
		hosts string
		local bool
		kinds string // of the paths between the first two
	}{
		"one key":            {"auto key, auto key, auto key", true, "shm"},
		"one key, sockets":   {"unix key, unix key, unix key", true, "unix"},
		"keys that differ":   {"unix key, unix other", false, "unix"},
		"a key and none":     {"auto key, auto", false, "shm"},
		"none":               {"auto, auto", false, "shm"},
		"only libp2p":        {"p2p key, p2p key", false, "p2p"},
		"one wants libp2p":   {"auto key, p2p key", false, "p2p"},
		"direct connections": {"direct key, direct key", false, "direct"},
		"sockets and memory": {"unix key, auto key", true, "unix"},
	} {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			hs, v := keyed(t, strings.Split(c.hosts, ", ")...)
			ts := mustMeet(t, hs, v)
			talk(t, ts)
			if kind := ts[0].Path(1).Kind; kind != c.kinds {
				t.Errorf("the path is %q, want %q", kind, c.kinds)
			}
			last := hs[len(hs)-1]
			if err := last.Send(t.Context(), hs[0].ID(), []byte("hello")); err != nil {
				t.Error(err)
			}
			endAll(t, ts)
			if n := libp2pConns(hs); c.local != (n == 0) {
				t.Errorf("%d connections of libp2p, want none: %v", n, c.local)
			}
		})
	}
}

// A dial before the other side has its key, or before it was introduced, succeeds later.
func TestLocalComesEarly(t *testing.T) {
	hs, v := keyed(t, "auto key", "auto")
	key := append([]byte("key"), make([]byte, HostKeySize-3)...)
	if err := hs[0].Introduce(v.Members); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- hs[0].Send(ctx, hs[1].ID(), []byte("early")) }()
	hs[1].UseHostKey(key) // hs[0] is refused until it is introduced
	if err := hs[1].Introduce(v.Members); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if n := libp2pConns(hs); n > 0 {
		t.Errorf("%d connections of libp2p", n)
	}
}

// Other hosts detect the end of a process of their host at once, as elastic.ErrGone.
func TestLocalDeath(t *testing.T) {
	hs, v := keyed(t, "auto key", "auto key", "auto key")
	for _, h := range hs {
		if err := h.Introduce(v.Members); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	if err := hs[0].Send(ctx, hs[1].ID(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := hs[1].Close(); err != nil {
		t.Fatal(err)
	}
	for hs[0].Send(ctx, hs[1].ID(), []byte("is it there?")) == nil {
		// This side may not have seen the end of the stream yet.
	}
	if err := hs[0].Send(ctx, hs[1].ID(), []byte("is it there?")); !errors.Is(err, elastic.ErrGone) {
		t.Errorf("to one that has been heard: %v, want %v", err, elastic.ErrGone)
	}
	if err := hs[2].Send(ctx, hs[1].ID(), []byte("is it there?")); !errors.Is(err, elastic.ErrGone) {
		t.Errorf("to one that has never been heard: %v, want %v", err, elastic.ErrGone)
	}
}

// A banned peer receives a refusal with the reason, which ends its attempts. The streams of the
// peer end.
func TestLocalForget(t *testing.T) {
	hs, v := keyed(t, "auto key", "auto key")
	ts := mustMeet(t, hs, v)
	hs[0].Forget(hs[1].ID())
	if err := hs[0].Send(t.Context(), hs[1].ID(), nil); !errors.Is(err, mesh.ErrBanned) {
		t.Errorf("send to it: %v, want %v", err, mesh.ErrBanned)
	}
	for id, want := range map[string]direct.Refusal{string(hs[1].ID()): direct.Banned, hs[0].ID().Short(): direct.Unknown} {
		if code := hs[0].local.admit(id); code != want {
			t.Errorf("%s: code %d, want %d", id, code, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	// The banned peer may not have seen the end of its stream yet; then its first message is lost.
	err := hs[1].Send(ctx, hs[0].ID(), nil)
	for err == nil {
		err = hs[1].Send(ctx, hs[0].ID(), nil)
	}
	if !errors.Is(err, mesh.ErrBanned) {
		t.Errorf("sent by it: %v, want %v", err, mesh.ErrBanned)
	}
	endAll(t, ts)
}

// Listen fails if the name of its socket is taken.
func TestLocalNameTaken(t *testing.T) {
	hs, _ := keyed(t, "auto key")
	if _, err := direct.Open(direct.Config{ID: string(hs[0].ID())}); err == nil {
		t.Error("two processes listen under one ID")
	}
}

// hangUp ends all streams within the host but data streams. The close of a host ends them all, and
// refuses those that come later.
func TestLocalStreamsEnd(t *testing.T) {
	keepsFiles(t)
	hs, v := keyed(t, "auto key", "auto key")
	introduce(t, hs, v)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	l, to := hs[0].local, hs[1].ID()
	open := func(k mesh.Kind) mesh.Stream {
		t.Helper()
		s, err := l.open(ctx, to, k)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	bulk, data := open(mesh.Bulk), open(mesh.Data)
	ended := func(s mesh.Stream) bool { return errors.Is(s.SetReadDeadline(time.Time{}), net.ErrClosed) }
	l.hangUp(hs[0].ID())
	if ended(bulk) {
		t.Error("a stream with another peer has ended")
	}
	l.hangUp(to)
	if !ended(bulk) || ended(data) {
		t.Errorf("the end of bulk stream: %v, of the data stream: %v", ended(bulk), ended(data))
	}
	l.close()
	if !ended(data) {
		t.Error("a data stream survives its host")
	}
	if _, err := l.open(ctx, to, mesh.Bulk); !errors.Is(err, net.ErrClosed) {
		t.Errorf("open after the end: %v", err)
	}
	if len(l.streams) > 0 {
		t.Errorf("%d streams are left", len(l.streams))
	}
}
