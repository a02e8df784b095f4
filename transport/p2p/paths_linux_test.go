package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// keepsFiles fails the test if the test and its later cleanups leave a file descriptor open. It
// waits, because goroutines that are about to end may still close descriptors.
func keepsFiles(t testing.TB) {
	t.Helper()
	count := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := count()
	t.Cleanup(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for begun := time.Now(); count() > before; <-tick.C {
			if time.Since(begun) > hang {
				t.Errorf("%d descriptors are open, there were %d", count(), before)
				return
			}
		}
	})
}

// party starts a host for each word, such as "direct" or "direct never": Config.Path, and
// Config.Encrypt.
func party(t testing.TB, ways ...string) ([]*Host, elastic.View) {
	t.Helper()
	var hs []*Host
	v := elastic.View{Epoch: 1}
	for i, way := range ways {
		path, encrypt, _ := strings.Cut(way, " ")
		h, err := Listen(t.Context(), Config{Job: "test", Path: path, Encrypt: encrypt, ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
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

// following returns the view after v, of some of its members.
func following(v elastic.View, ranks ...int) elastic.View {
	next := elastic.View{Epoch: v.Epoch + 1, Parent: v.Hash()}
	for _, r := range ranks {
		next.Members = append(next.Members, v.Members[r])
	}
	return next
}

// meet connects hosts, which are in rank order.
func meet(t testing.TB, hs []*Host, v elastic.View) ([]*mesh.Transport, []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	ts, errs := make([]*mesh.Transport, len(hs)), make([]error, len(hs))
	done := make(chan struct{})
	for rank := range hs {
		go func() {
			ts[rank], errs[rank] = connected(hs[rank].Connect(ctx, v, rank))
			done <- struct{}{}
		}()
	}
	for range hs {
		<-done
	}
	return ts, errs
}

// mustMeet is meet, and fails the test on any error.
func mustMeet(t testing.TB, hs []*Host, v elastic.View) []*mesh.Transport {
	t.Helper()
	ts, errs := meet(t, hs, v)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ts
}

// endAll closes all transports at once, as ranks do.
func endAll(t testing.TB, ts []*mesh.Transport) {
	t.Helper()
	done := make(chan error)
	for _, e := range ts {
		go func() { done <- e.Close() }()
	}
	for range ts {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// talk sends a long message from each rank to each other rank.
func talk(t testing.TB, ts []*mesh.Transport) {
	t.Helper()
	const size = 300 << 10
	var errs []<-chan error
	start := func(f func() error) {
		done := make(chan error, 1)
		go func() { done <- f() }()
		errs = append(errs, done)
	}
	for a, from := range ts {
		for b, to := range ts {
			if a == b {
				continue
			}
			start(func() error {
				return from.Send(t.Context(), b, transport.Envelope{Seq: 1}, slices.Repeat([]byte{byte(a + 1)}, size))
			})
			start(func() error {
				got := make([]byte, size)
				err := to.Recv(t.Context(), a, transport.Envelope{Seq: 1}, got)
				if err == nil && (got[0] != byte(a+1) || got[size-1] != byte(a+1)) {
					err = fmt.Errorf("from %d to %d came %d and %d", a, b, got[0], got[size-1])
				}
				return err
			})
		}
	}
	for _, done := range errs {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// wantPath checks the path from rank a to rank b.
func wantPath(t testing.TB, ts []*mesh.Transport, a, b int, kind, why string) {
	t.Helper()
	p := ts[a].Path(b)
	if p.Kind != kind || !strings.Contains(p.Why, why) || (why == "") != (p.Why == "") {
		t.Errorf("rank %d reaches %d by %s (%s), want %s (%s)", a, b, p.Kind, p.Why, kind, why)
	}
	if encrypted := kind == "p2p" || kind == "direct"; p.Encrypted != encrypted {
		t.Errorf("rank %d reaches %d by %s, encrypted %v", a, b, p.Kind, p.Encrypted)
	}
}

// Each pair uses the best path that both members want, and reports why if it is not the best kind.
func TestPathsOfPairs(t *testing.T) {
	const unwanted = "does not want to share memory"
	for name, test := range map[string]struct {
		ways  []string
		kinds map[[2]int]string // the kinds of the paths, by pair
		why   map[[2]int]string // as the first of the two says
	}{
		"auto":         {[]string{"", "auto", ""}, map[[2]int]string{{0, 1}: "shm", {0, 2}: "shm", {1, 2}: "shm"}, nil},
		"auto and shm": {[]string{"auto", "shm"}, map[[2]int]string{{0, 1}: "shm"}, nil},
		"one by unix": {[]string{"auto", "auto", "unix"}, map[[2]int]string{{0, 1}: "unix", {0, 2}: "unix", {1, 2}: "unix"},
			map[[2]int]string{{0, 1}: unwanted, {1, 0}: unwanted, {0, 2}: unwanted, {1, 2}: unwanted}},
		"one by direct": {[]string{"auto", "direct", "auto"}, map[[2]int]string{{0, 1}: "direct", {0, 2}: "shm", {1, 2}: "direct"}, nil},
		"one by p2p":    {[]string{"p2p", "auto", "auto"}, map[[2]int]string{{0, 1}: "p2p", {0, 2}: "p2p", {1, 2}: "shm"}, nil},
		"all alone":     {[]string{"p2p", "direct", "unix"}, map[[2]int]string{{0, 1}: "p2p", {0, 2}: "p2p", {1, 2}: "direct"}, nil},
		"one in clear":  {[]string{"direct", "direct never"}, map[[2]int]string{{0, 1}: "direct"}, nil},
		"one always":    {[]string{"direct always", "direct never"}, map[[2]int]string{{0, 1}: "direct"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			hs, v := party(t, test.ways...)
			ts := mustMeet(t, hs, v)
			for pair, kind := range test.kinds {
				wantPath(t, ts, pair[0], pair[1], kind, test.why[pair])
				wantPath(t, ts, pair[1], pair[0], kind, test.why[[2]int{pair[1], pair[0]}])
			}
			talk(t, ts)
			endAll(t, ts)
			closeHosts(t, hs)
		})
	}
}

// closeHosts closes the hosts before keepsFiles looks for open descriptors.
func closeHosts(t testing.TB, hs []*Host) {
	t.Helper()
	for _, h := range hs {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// If both sides have Encrypt "never" direct connections are not encrypted, and Path reports that.
// libp2p's streams are encrypted, and the peers are still authenticated.
func TestPathInClear(t *testing.T) {
	hs, v := party(t, "direct never", "direct never", "p2p never")
	ts := mustMeet(t, hs, v)
	if p := ts[0].Path(1); p.Kind != "direct" || p.Encrypted {
		t.Errorf("path %+v", p)
	}
	wantPath(t, ts, 0, 2, "p2p", "")
	talk(t, ts)
	endAll(t, ts)
}

// A member with Path "shm" enters no session without shared memory, and reports why. The others do
// not enter one either, as they would never complete it.
func TestPathShmOnly(t *testing.T) {
	for other, want := range map[string]string{
		"unix":   "rank 1 does not want to share memory",
		"direct": "rank 1 wants the transport direct",
		"p2p":    "rank 1 wants the transport p2p",
	} {
		hs, v := party(t, "shm", other)
		_, errs := meet(t, hs, v)
		if !errors.Is(errs[0], elastic.ErrNoView) || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("beside %s: %v", other, errs[0])
		}
		if want := "rank 1 wants the transport " + other; !errors.Is(errs[1], elastic.ErrNoView) || !strings.Contains(errs[1].Error(), want) {
			t.Errorf("%s: %v", other, errs[1])
		}
	}
	alone, v := party(t, "shm")
	endAll(t, mustMeet(t, alone, v))
}

// A newcomer that cannot share memory with members that have Path "shm" is put out; the members
// stay.
func TestPathShmOnlyAndNewcomer(t *testing.T) {
	hs, v := party(t, "shm", "shm", "direct")
	first, second := following(v, 0, 1), following(v, 0, 1, 2)
	endAll(t, mustMeet(t, hs[:2], first))
	second.Epoch, second.Parent = first.Epoch+1, first.Hash()
	_, errs := meet(t, hs, second)
	for rank, err := range errs {
		var lost *transport.PeerError
		switch {
		case errors.Is(err, elastic.ErrNoView) != (rank == 2):
			t.Errorf("rank %d: %v", rank, err)
		case rank < 2 && (!errors.As(err, &lost) || lost.Rank != 2 || !strings.Contains(err.Error(), "rank 2 wants the transport direct")):
			t.Errorf("rank %d: %v, want the loss of rank 2", rank, err)
		}
	}
}

// The death of a member does not make a member with Path "shm" give up for good, though no memory
// is shared in that attempt.
func TestPathShmOnlyAndDead(t *testing.T) {
	hs, v := trio(t, "shm")
	errs := make(chan error)
	for rank := range 2 {
		go func() {
			_, err := hs[rank].Connect(t.Context(), v, rank)
			errs <- err
		}()
	}
	hangUp(impostor(t, hs, v))
	for range 2 {
		if err := <-errs; err == nil || errors.Is(err, elastic.ErrNoView) {
			t.Errorf("got %v", err)
		}
	}
	stillThere(t, hs, v)
}

func TestPathUnknown(t *testing.T) {
	for _, cfg := range []Config{{Path: "pigeon"}, {Encrypt: "sometimes"}} {
		if h, err := Listen(t.Context(), cfg); err == nil {
			t.Errorf("%+v: %v", cfg, h.Close())
		}
	}
}

// On a system without shared memory all ranks report that it is missing, and work without it.
func TestShareWithoutMemory(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	hs, v := party(t, "auto", "auto")
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: old.Max}); err != nil {
		t.Skip(err)
	}
	ts, errs := meet(t, hs, v)
	if err := errors.Join(append(errs, unix.Setrlimit(unix.RLIMIT_FSIZE, &old))...); err != nil {
		t.Fatal(err)
	}
	wantPath(t, ts, 0, 1, "unix", "too large")
	wantPath(t, ts, 1, 0, "unix", "too large")
	talk(t, ts)
	endAll(t, ts)
}

// If a peer dies while the ranks agree on memory, the session of the others ends with its death as
// the cause.
func TestShareWithDead(t *testing.T) {
	hs, v := trio(t, "auto")
	var streams [2]lines
	t0, t1 := enter(t, hs, v, func() {
		streams = impostor(t, hs, v)
		hangUp(streams)
	})
	for rank, e := range []*mesh.Transport{t0, t1} {
		var lost *transport.PeerError
		if err := e.Recv(t.Context(), 1-rank, transport.Envelope{Seq: 1}, nil); !errors.As(err, &lost) || lost.Rank != 2 {
			t.Errorf("rank %d: %v, want the loss of rank 2", rank, err)
		}
		if e.Shared() != nil {
			t.Errorf("rank %d shares memory", rank)
		}
	}
	endAll(t, []*mesh.Transport{t0, t1})
	stillThere(t, hs, v)
}

// shut makes a host's direct port refuse, like a firewall that answers.
func shut(t testing.TB, h *Host) {
	t.Helper()
	if err := h.listener.port.Close(); err != nil {
		t.Fatal(err)
	}
}

// If neither direct port answers, the libp2p stream is the fallback, and Path reports the errors.
func TestPathFallsBack(t *testing.T) {
	for path, what := range map[string]string{"direct": "dial tcp 127.0.0.1", "unix": "dial unix @elrun-12D3", "auto": "dial unix @elrun-12D3"} {
		hs, v := party(t, path, path)
		shut(t, hs[0])
		shut(t, hs[1])
		ts := mustMeet(t, hs, v)
		for rank := range ts {
			why := ts[rank].Path(1 - rank).Why
			wantPath(t, ts, rank, 1-rank, "p2p", "refused")
			if !strings.Contains(why, what) {
				t.Errorf("%s: rank %d says %q, not what was tried (%s)", path, rank, why, what)
			}
		}
		talk(t, ts)
		endAll(t, ts)
	}
}

// An unresponsive target is not dialled again for a while; other targets are dialled.
func TestPathIsSilent(t *testing.T) {
	t.Parallel() // it waits
	hs, _ := party(t, "direct")
	l, err := net.Listen("tcp", "127.0.0.1:0") // a listener that never accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := direct.Target{Network: "tcp", Addr: l.Addr().String()}
	id, err := idOf(string(hs[0].ID()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hs[0].paths.dialTarget(t.Context(), id, to, new(offer)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first time: %v", err)
	}
	if _, err := hs[0].paths.dialTarget(t.Context(), id, to, new(offer)); !errors.Is(err, errSilent) {
		t.Errorf("the second time: %v", err)
	}
	to.Addr = "127.0.0.1:1"
	if _, err := hs[0].paths.dialTarget(t.Context(), id, to, new(offer)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("another one: %v", err)
	}
	hs[0].paths.routes.silent[direct.Target{Addr: "long ago"}] = time.Now().Add(-2 * silentTime)
	hs[0].paths.routes.markSilent(to)
	if len(hs[0].paths.routes.silent) != 2 {
		t.Errorf("%d are remembered, want 2", len(hs[0].paths.routes.silent))
	}
}
