package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/transport/internal/wire"
)

// keepsFiles checks that no descriptor is left open after the test and its other cleanups. It waits
// a moment, because goroutines that are about to end may still close descriptors.
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

// crew returns the n ranks of one host at the moment at which all their sockets are there.
func crew(t *testing.T, n int) []*shmGroup {
	t.Helper()
	v := elastic.View{Epoch: 1}
	all := make([]*shmGroup, n)
	for i := range all {
		id := elastic.ID(fmt.Sprint("peer ", i))
		h := newHostMemory(id, &Config{}, newLifetime())
		t.Cleanup(func() {
			if err := h.close(); err != nil {
				t.Error(err)
			}
		})
		v.Members = append(v.Members, elastic.Member{ID: id})
		all[i] = &shmGroup{host: h, localRank: i, conns: make([]unixStream, n), timeout: hang,
			processes: make([]*hostProcess, n), knownFiles: make([]uint64, n)}
	}
	p := newPlug(t)
	for i, s := range all {
		s.view = v
		for j := range n {
			s.ranks = append(s.ranks, j)
		}
		for j := range i {
			s.conns[j], all[j].conns[i] = wired(t, p)
		}
	}
	return all
}

// wired returns both ends of a connection over Unix sockets.
func wired(t *testing.T, p plug) (unixStream, unixStream) {
	t.Helper()
	a, b, err := p.pair(t.Context(), "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = a.Close(), b.Close() // no effect if they are closed already
	})
	return a, b
}

// conclude lets ranks agree, and returns their errors. f replaces the rank with the index played;
// if played is -1, all ranks are real. Ranks that shared memory have released it when conclude
// returns.
func conclude(t *testing.T, all []*shmGroup, played int, f func(s *shmGroup) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	type result struct {
		place int
		err   error
	}
	results := make(chan result)
	for place, s := range all {
		go func() {
			if place == played {
				results <- result{place, f(s)}
				return
			}
			results <- result{place, s.negotiate(ctx)}
		}()
	}
	errs := make([]error, len(all))
	for range all {
		r := <-results
		errs[r.place] = r.err
	}
	if ctx.Err() != nil {
		t.Errorf("it took too long: %v", errs)
	}
	if played >= 0 && errs[played] != nil {
		t.Errorf("the one that is played: %v", errs[played])
	}
	for place, s := range all {
		if place != played && errs[place] == nil {
			if err := s.release(); err != nil {
				t.Error(err)
			}
		}
	}
	return errs
}

// All ranks of a group share the arenas of all.
func TestAgree(t *testing.T) {
	keepsFiles(t)
	for _, n := range []int{2, 3, 6} {
		all := crew(t, n)
		for _, s := range all {
			own, err := s.host.processes.own()
			if err != nil {
				t.Fatal(err)
			}
			own.bytes[s.localRank] = byte(s.localRank + 1)
			if err := s.host.processes.release(s.host.processes.self); err != nil {
				t.Error(err)
			}
		}
		errs := make(chan error)
		for _, s := range all {
			go func() { errs <- s.negotiate(t.Context()) }()
		}
		for range all {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range all {
			for place := range all {
				if got := s.processes[place].bytes[place]; got != byte(place+1) {
					t.Errorf("%d ranks: at rank %d the arena of rank %d has %d", n, s.localRank, place, got)
				}
			}
			if own := s.host.processes.byID[s.host.processes.self]; own.arena == nil || s.processes[s.localRank] != own {
				t.Errorf("rank %d has another arena", s.localRank)
			}
		}
		s := all[0].shared(nil)
		go func() { errs <- s.Memory.(*shm.Attached).Lane(0, s.Ranks).AwaitAll() }()
		for _, o := range all[1:] {
			go func() { errs <- o.segment.Lane(0, o.ranks).AwaitAll() }()
		}
		for range all {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		for _, s := range all {
			s := s.shared(nil)
			if err := errors.Join(s.Release(), s.Release()); err != nil {
				t.Error(err)
			}
		}
	}
}

func isPassing(err error) bool { return errors.As(err, new(transientError)) }

// readyOf returns a correct kindReady message.
func readyOf(s *shmGroup) shareMessage {
	return shareMessage{kind: kindReady, mask: 1 << s.localRank, layout: shm.Layout}
}

// sendReady sends a message of a rank that is ready, with the file of an event.
func sendReady(s *shmGroup, m shareMessage) error {
	b, err := shm.NewEvent()
	if err != nil {
		return err
	}
	return errors.Join(sendShare(s.conns[0], m, b.File()), b.Close())
}

// getOffer receives an offer, and its files.
func getOffer(s *shmGroup) error {
	m, files, err := receiveShare(s.conns[0])
	closeFiles(files)
	if err == nil && m.kind != kindOffer {
		err = fmt.Errorf("got message %d: %s", m.kind, m.why)
	}
	return err
}

// misfit is a wrong behaviour of a rank, and the reason that the others then report.
type misfit struct {
	play func(s *shmGroup) error
	want string
}

// first returns the socket to the first rank.
func first(s *shmGroup) unixStream { return s.conns[0] }

// oddly returns the behaviour of a rank that changes its kindReady message.
func oddly(change func(*shareMessage)) func(*shmGroup) error {
	return func(s *shmGroup) error {
		m := readyOf(s)
		change(&m)
		return sendReady(s, m)
	}
}

// with returns the behaviour of a rank that sends the wrong files with its kindReady message.
func with(files func() []*os.File) func(*shmGroup) error {
	return func(s *shmGroup) error {
		all := files()
		defer closeFiles(all)
		return sendShare(first(s), readyOf(s), all...)
	}
}

// misfits returns wrong behaviours of a rank other than the first, in a group of three.
func misfits() map[string]misfit {
	return map[string]misfit{
		"ends at once": {func(s *shmGroup) error { return first(s).Reset() }, "rank 2: direct: receive"},
		"ends when it is ready": {func(s *shmGroup) error {
			return errors.Join(sendReady(s, readyOf(s)), getOffer(s), first(s).Reset())
		}, "rank 2: direct: receive"},
		"says that it cannot": {oddly(func(m *shareMessage) { m.why = "no such thing here" }), "no such thing here"},
		"cannot map": {func(s *shmGroup) error {
			ack := shareMessage{kind: kindAck, why: "out of addresses"}
			return errors.Join(sendReady(s, readyOf(s)), getOffer(s), sendShare(first(s), ack))
		}, "out of addresses"},
		"garbage": {func(s *shmGroup) error {
			_, err := first(s).Write([]byte(strings.Repeat("garbage!", 20)))
			return err
		}, "not an elrun frame"},
		"another frame": {func(s *shmGroup) error {
			_, err := first(s).Write(wire.AppendFrame(nil, wire.Data, nil))
			return err
		}, "got data"},
		"a short message": {func(s *shmGroup) error {
			_, err := first(s).Write(wire.AppendFrame(nil, wire.Share, []byte{kindReady}))
			return err
		}, "read share"},
		"another kind": {oddly(func(m *shareMessage) { m.kind = kindAck }), "message 3 of the agreement on shared memory, want message 1"},
		"ready twice": {func(s *shmGroup) error {
			return errors.Join(sendReady(s, readyOf(s)), getOffer(s), sendReady(s, readyOf(s)))
		}, "message 1 of the agreement on shared memory, want message 3"},
		"another layout": {oddly(func(m *shareMessage) { m.layout++ }), "another layout of shared memory"},
		"no files":       {with(func() []*os.File { return nil }), "0 files"},
		"many files":     {with(func() []*os.File { return pipes(3) }), "3 files"},
		"no event":       {with(func() []*os.File { return []*os.File{memory(false)} }), "could block"},
		"no arena":       {with(func() []*os.File { return []*os.File{counter(), memory(false)} }), "could shrink"},
		"late files": {func(s *shmGroup) error {
			b := wire.AppendFrame(nil, wire.Share, new(shareMessage).append(nil))
			_, err := first(s).Write(b[:wire.HeaderSize])
			files := pipes(1)
			defer closeFiles(files)
			return errors.Join(err, first(s).SendFiles(b[wire.HeaderSize:], files))
		}, "files came after the header"},
	}
}

// pipes returns n files: the ends of pipes.
func pipes(n int) []*os.File {
	var all []*os.File
	for len(all) < n {
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		if all = append(all, r); len(all) < n {
			all = append(all, w)
		} else {
			_ = w.Close()
		}
	}
	return all
}

// counter returns the file of an event that nobody waits for.
func counter() *os.File {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		panic(err)
	}
	return os.NewFile(uintptr(fd), "test")
}

// memory returns a file of memory that can shrink, or cannot if sealed is true.
func memory(sealed bool) *os.File {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, 4096)
	}
	if err == nil && sealed {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		panic(err)
	}
	return os.NewFile(uintptr(fd), "test")
}

// If a rank cannot share memory, dies, or breaks the protocol, no rank of the group shares memory. All get the
// same reason, and the sockets between the others stay usable.
func TestAgreeWithMisfit(t *testing.T) {
	for name, m := range misfits() {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			all := crew(t, 3)
			errs := conclude(t, all, 2, m.play)
			for place, err := range errs[:2] {
				if err == nil || !strings.Contains(err.Error(), m.want) {
					t.Errorf("rank %d: %v, want %q", place, err, m.want)
				}
				if got, want := isPassing(err), isPassing(errs[0]); got != want {
					t.Errorf("rank %d: %v, unlike at rank 0", place, err)
				}
			}
			stillOpen(t, all[0].conns[1], all[1].conns[0])
		})
	}
}

// stillOpen checks that a byte gets through in each direction. Late messages of the agreement may
// precede the byte.
func stillOpen(t *testing.T, a, b unixStream) {
	t.Helper()
	for _, c := range [][2]unixStream{{a, b}, {b, a}} {
		if _, err := c[0].Write(wire.AppendFrame(nil, wire.Signal, []byte{7})); err != nil {
			t.Error(err)
			continue
		}
		var h wire.Header
		var body []byte
		for h.Kind != wire.Signal {
			var head [wire.HeaderSize]byte
			_, err := io.ReadFull(c[1], head[:])
			if err == nil {
				h, err = wire.DecodeHeader(&head)
			}
			body = make([]byte, h.Length)
			if err == nil {
				_, err = io.ReadFull(c[1], body)
			}
			if err != nil || h.Kind != wire.Signal && h.Kind != wire.Share {
				t.Fatalf("received %v, %v", h.Kind, err)
			}
		}
		if string(body) != "\a" {
			t.Errorf("received %q", body)
		}
	}
}

// The first rank stops waiting for a silent rank at its time limit. After that all others get the
// result, although the deadline of their sockets has passed.
func TestAgreeWithSilence(t *testing.T) {
	for name, ready := range map[string]bool{"from the beginning": false, "when it is ready": true} {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			all := crew(t, 4)
			if !ready {
				all[0].timeout = 50 * time.Millisecond
			}
			errs := conclude(t, all, 1, func(s *shmGroup) error {
				if ready {
					if err := errors.Join(sendReady(s, readyOf(s)), getOffer(s)); err != nil {
						return err
					}
					all[0].limit(time.Unix(1, 0)) // as when its time limit is over
				}
				m, _, err := receiveShare(s.conns[0]) // the result with its reason, and nothing else
				if err != nil || m.kind != kindResult || m.mask == 0 || !strings.Contains(m.why, "timeout") {
					return fmt.Errorf("told %+v, %v", m, err)
				}
				return nil
			})
			for _, place := range []int{0, 2, 3} {
				if !isPassing(errs[place]) || !strings.Contains(errs[place].Error(), "timeout") ||
					!ready && !strings.Contains(errs[place].Error(), "rank 1") {
					t.Errorf("rank %d: %v", place, errs[place])
				}
			}
			stillOpen(t, all[0].conns[3], all[3].conns[0])
			stillOpen(t, all[0].conns[1], all[1].conns[0])
		})
	}
}

// If the death watch reports the death of a local rank, died is called once, with the rank in the view.
func TestDeathWatchNamesRank(t *testing.T) {
	keepsFiles(t)
	all := crew(t, 3)
	errs := make(chan error)
	for _, s := range all {
		s.ranks = []int{3, 4, 8}
		s.view.Members = slices.Repeat(s.view.Members, 3) // rank 3 is the first again, and so on
		go func() { errs <- s.negotiate(t.Context()) }()
	}
	for range all {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	const ownerDied = 3 << 30                // FUTEX_WAITERS and FUTEX_OWNER_DIED of the kernel
	b := all[1].memory.Bytes()               // ends with 8 bytes for each pair
	word := b[len(b)-3*3*8+(2*3+1)*8:][:4:4] // for place 1, of place 2
	binary.NativeEndian.PutUint32(word, ownerDied)
	died := make(chan int, 3)
	all[1].watchDeaths(func(rank int) { died <- rank })
	if rank := <-died; rank != 8 {
		t.Errorf("rank %d died, want 8", rank)
	}
	for _, s := range all {
		if err := s.release(); err != nil {
			t.Error(err)
		}
	}
	if len(died) > 0 {
		t.Errorf("rank %d died, too", <-died)
	}
}

// A peer whose process has died counts as lost at once, although its streams are open. But a peer
// that has said bye does not count as lost.
func TestDiedPeer(t *testing.T) {
	hs, v := startOnHost(t, "auto", "auto", "auto")
	ts := mustMeet(t, hs, v)
	go ts[2].Close() // endAll waits for it
	<-ts[0].pairs[2].Load().left
	ts[0].pairs[2].Load().peerDied()
	if cause := ts[0].box.Cause(); cause != nil {
		t.Errorf("revoked by the death of one that had left: %v", cause)
	}
	ts[0].pairs[1].Load().peerDied()
	var lost *transport.PeerError
	if cause := ts[0].box.Cause(); !errors.As(cause, &lost) || lost.Rank != 1 || lost.Peer != v.Members[1].ID.Short() || !lost.Ended {
		t.Errorf("revoked by %v, want the certain end of rank 1", cause)
	}
	endAll(t, ts)
}
