package mesh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// The files of another process are taken over once, and kept for as long as they are used or the process
// is a member.
func TestHostProcesses(t *testing.T) {
	keepsFiles(t)
	s := newHostProcesses("self", nil)
	other, err := shm.NewArena(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if s.acquire("other") != nil {
		t.Error("held before its files have come")
	}
	first, err := s.add("other", counter(), again(t, other.File()))
	if err != nil {
		t.Fatal(err)
	}
	other.Bytes()[7] = 1
	if len(first.bytes) != 1<<20 || first.bytes[7] != 1 {
		t.Errorf("mapped %d bytes, of which one is %d", len(first.bytes), first.bytes[7])
	}
	files := []*os.File{counter(), again(t, other.File())}
	if second, err := s.add("other", files[0], files[1]); err != nil || second != first {
		t.Errorf("taken again, %v", err)
	}
	for _, f := range files {
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) { // before the garbage collector closes it
			t.Errorf("a file of what is there already is open: %v", err)
		}
	}
	with, without := viewOf("self", "other"), viewOf("self")
	for _, step := range []struct {
		what string
		do   func() error
		kept bool
	}{
		{"one use ends", func() error { return s.release("other") }, true},
		{"it leaves", func() error { s.retain(without); return nil }, true},
		{"it is used again", func() error { s.acquire("other"); return nil }, true},
		{"uses end", func() error { return errors.Join(s.release("other"), s.release("other")) }, true},
		{"it stays", func() error { s.retain(with); return nil }, true},
		{"it leaves at last", func() error { s.retain(without); return nil }, false},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		if s.byID["other"] != nil != step.kept {
			t.Errorf("%s: it is kept: %v", step.what, !step.kept)
		}
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if n, err := s.add("other", counter(), again(t, other.File())); err == nil {
		t.Errorf("%d bytes after the end", len(n.bytes))
	}
}

// again returns a second descriptor of a file, like one that comes with a message.
func again(t *testing.T, f *os.File) *os.File {
	t.Helper()
	g, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func viewOf(ids ...elastic.ID) elastic.View {
	var v elastic.View
	for _, id := range ids {
		v.Members = append(v.Members, elastic.Member{ID: id})
	}
	return v
}

// The event and the arena of this process stay the same until it closes, and longer while they are in use.
func TestOwn(t *testing.T) {
	keepsFiles(t)
	s := newHostProcesses("self", nil)
	own, err := s.own()
	if err != nil {
		t.Fatal(err)
	}
	if same, err := s.own(); err != nil || same != own {
		t.Errorf("made twice, %v", err)
	}
	a := own.arena
	v, err := a.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.release("self"); err != nil {
		t.Fatal(err)
	}
	s.retain(viewOf("self"))
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Alloc(1); err != nil {
		t.Errorf("in use: %v", err)
	}
	if f, err := own.openEvent(); err != nil {
		t.Errorf("in use: %v", err)
	} else {
		closeFiles([]*os.File{f})
	}
	if err := s.release("self"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Alloc(1); err == nil {
		t.Error("allocated after the end")
	}
	if f, err := own.openEvent(); err == nil {
		t.Error("an event after the end")
		closeFiles([]*os.File{f})
	}
	v[99] = 1 // still mapped
	if _, err := s.own(); err == nil {
		t.Error("made again after the end")
	}
	b := a.Bytes()
	if err := errors.Join(a.Free(v), a.Free(b[4096:4097])); err != nil { // the second Alloc
		t.Error(err)
	}
}

// comms makes communicators of transports.
func comms(t testing.TB, ts []*Transport) []*collective.Comm {
	t.Helper()
	var all []*collective.Comm
	for rank, e := range ts {
		c, err := collective.New(e, rank, len(ts), collective.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// atAll runs f at all ranks and returns their errors.
func atAll(cs []*collective.Comm, f func(rank int, c *collective.Comm) error) []error {
	errs := make([]error, len(cs))
	done := make(chan struct{})
	for rank, c := range cs {
		go func() {
			errs[rank] = f(rank, c)
			done <- struct{}{}
		}()
	}
	for range cs {
		<-done
	}
	return errs
}

func closeComms(t testing.TB, cs []*collective.Comm) {
	t.Helper()
	if err := errors.Join(atAll(cs, func(_ int, c *collective.Comm) error { return c.Close() })...); err != nil {
		t.Error(err)
	}
}

// Arenas are mapped once for all sessions, so vectors keep their addresses. The memory of a session
// is unmapped at the end of the session. The arena of a peer that has left is unmapped at the end
// of the last session that had the peer.
func TestArenasOverSessions(t *testing.T) {
	keepsFiles(t)
	hs, v := startOnHost(t, "auto", "auto", "auto")
	ts := mustMeet(t, hs, v)
	cs := comms(t, ts)
	vectors := make([][]int64, 3)
	for rank, c := range cs {
		var err error
		if vectors[rank], err = collective.Alloc[int64](c, 100_000); err != nil || !c.SharesMemory() {
			t.Fatalf("rank %d shares memory: %v, %v", rank, c.SharesMemory(), err)
		}
	}
	sumAll(t, cs, vectors)
	gone := hs[2].ID()
	arena := hs[2].memory.processes.byID[gone].arena
	was := hs[0].memory.processes.byID[hs[1].ID()]
	next := following(v, 0, 1, 2)
	ts = mustMeet(t, hs, next) // before the transports of the view before end
	closeComms(t, cs)
	cs = comms(t, ts)
	sumAll(t, cs, vectors)
	last := following(next, 0, 1)
	ts = mustMeet(t, hs[:2], last)
	if hs[0].memory.processes.byID[gone] == nil {
		t.Error("an arena is gone that a session uses")
	}
	closeComms(t, cs)
	if hs[0].memory.processes.byID[gone] != nil {
		t.Error("the arena of a peer that has left is still mapped")
	}
	cs = comms(t, ts)
	sumAll(t, cs, vectors)
	if hs[0].memory.processes.byID[hs[1].ID()] != was {
		t.Error("the arena of a peer that stays was mapped again")
	}
	for rank, c := range cs {
		if err := collective.Free(c, vectors[rank]); err != nil {
			t.Error(err)
		}
	}
	closeComms(t, cs)
	closeAll(t, hs)
	if err := arena.Free(arena.Bytes()[:1]); err != nil {
		t.Error(err)
	}
}

// A process that can make no arena shares memory without an arena. Its own paths say why it has none; the paths
// of others to it say only that it has none.
func TestPathWithoutArena(t *testing.T) {
	keepsFiles(t)
	for lone := range 3 {
		hs, v := startOnHost(t, "auto", "auto", "auto")
		hs[lone].memory.processes.arenaErr = errors.New("no room")
		ts := mustMeet(t, hs, v)
		a, b := (lone+1)%3, (lone+2)%3
		none := fmt.Sprintf("calls with rank %d copy vectors, as it has no arena", lone)
		wantPath(t, ts, lone, a, "shm", none+": no room")
		wantPath(t, ts, lone, b, "shm", none+": no room")
		wantPath(t, ts, a, lone, "shm", none)
		wantPath(t, ts, a, b, "shm", "")
		cs := comms(t, ts)
		vectors := make([][]int64, 3)
		for rank, c := range cs {
			var err error
			if vectors[rank], err = collective.Alloc[int64](c, 10_000); err != nil || c.SharesMemory() != (rank != lone) {
				t.Errorf("rank %d shares memory: %v, %v", rank, c.SharesMemory(), err)
			}
		}
		sumAll(t, cs, vectors)
		for rank, c := range cs {
			if err := collective.Free(c, vectors[rank]); err != nil {
				t.Error(err)
			}
		}
		closeComms(t, cs)
		closeAll(t, hs)
	}
}

// sumAll reduces the vectors of the ranks; each rank gets the sum in its own vector.
func sumAll(t *testing.T, cs []*collective.Comm, vectors [][]int64) {
	t.Helper()
	errs := atAll(cs, func(rank int, c *collective.Comm) error {
		for i := range vectors[rank] {
			vectors[rank][i] = int64(rank + i)
		}
		if err := collective.AllReduce(t.Context(), c, vectors[rank], vectors[rank], collective.Sum[int64]); err != nil {
			return err
		}
		n := len(cs)
		for i, got := range vectors[rank] {
			if want := int64(n*i + n*(n-1)/2); got != want {
				return fmt.Errorf("rank %d of %d element %d: %d, want %d", rank, n, i, got, want)
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// The death of a peer ends the calls of the others in shared memory, however far these calls have
// come, and the error names the peer. The others enter a view without the peer.
func TestDeathInMemory(t *testing.T) {
	keepsFiles(t)
	for dead := range 3 {
		hs, v := startOnHost(t, "auto", "auto", "auto")
		cs := comms(t, mustMeet(t, hs, v))
		reached := make(chan struct{})
		errs := make(chan error, 3)
		for rank, c := range cs {
			go func() {
				vector := make([]float32, 1<<16)
				for i := 0; ; i++ {
					if i == 20 && rank == dead {
						close(reached)
					}
					if err := collective.AllReduce(t.Context(), c, vector, vector, collective.Sum[float32]); err != nil {
						var lost *transport.PeerError
						if rank != dead && (!errors.As(err, &lost) || lost.Rank != dead) {
							errs <- fmt.Errorf("rank %d: %w, want the loss of rank %d", rank, err, dead)
							return
						}
						errs <- nil
						return
					}
				}
			}()
		}
		<-reached
		if err := hs[dead].Close(); err != nil {
			t.Error(err)
		}
		for range cs {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		closeComms(t, cs)
		left := []int{0, 1, 2}
		left = append(left[:dead], left[dead+1:]...)
		ts := mustMeet(t, []*Mesh{hs[left[0]], hs[left[1]]}, following(v, left...))
		wantPath(t, ts, 0, 1, "shm", "")
		endAll(t, ts)
		closeAll(t, hs)
	}
}

// A revocation may come while the memory is being released.
func TestRevokeAtTheEnd(t *testing.T) {
	hs, v := startOnHost(t, "auto", "auto")
	for range 30 {
		cs := comms(t, mustMeet(t, hs, v))
		done := make(chan struct{})
		for _, c := range cs {
			go func() {
				c.Revoke(context.Canceled)
				done <- struct{}{}
			}()
		}
		closeComms(t, cs)
		<-done
		<-done
		v = following(v, 0, 1)
	}
}

// Close of a transport releases the memory if no communicator was made of the transport.
func TestSharedIsGivenBack(t *testing.T) {
	keepsFiles(t)
	hs, v := startOnHost(t, "auto", "auto")
	ts := mustMeet(t, hs, v)
	wantPath(t, ts, 0, 1, "shm", "")
	endAll(t, ts)
	for rank, m := range hs {
		for id, n := range m.memory.processes.byID {
			if n.refs != 0 {
				t.Errorf("at rank %d %s has %d users", rank, id.Short(), n.refs)
			}
		}
	}
	closeAll(t, hs)
}

// If one rank of a host cannot set up the memory, no rank of the host shares memory. The ranks use
// their Unix sockets, and the paths say why. In the next view the ranks share memory again.
func TestShareFails(t *testing.T) {
	for broken := range 3 {
		t.Run(fmt.Sprint(broken), func(t *testing.T) {
			keepsFiles(t)
			hs, v := startOnHost(t, "auto", "auto", "auto")
			hs[broken].memory.processes.closed = true
			ts := mustMeet(t, hs, v)
			hs[broken].memory.processes.closed = false
			for a := range ts {
				if ts[a].Shared() != nil {
					t.Errorf("rank %d shares memory", a)
				}
				for b := range ts {
					if a != b {
						wantPath(t, ts, a, b, "unix", fmt.Sprintf("rank %d", broken))
					}
				}
			}
			talk(t, ts)
			next := following(v, 0, 1, 2)
			later := mustMeet(t, hs, next)
			wantPath(t, later, 0, 1, "shm", "")
			wantPath(t, later, 2, 1, "shm", "")
			talk(t, later)
			endAll(t, append(ts, later...))
			closeAll(t, hs)
		})
	}
}

// A given arena serves one mesh after the other, and stays open.
func TestGivenArena(t *testing.T) {
	keepsFiles(t)
	a, err := shm.NewArena(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, self := range []elastic.ID{"first", "second"} {
		s := newHostProcesses(self, a)
		own, err := s.own()
		if err != nil {
			t.Fatal(err)
		}
		if own.arena != a || own.file != a.File() || len(own.bytes) != 1<<20 {
			t.Errorf("%s has another arena", self)
		}
		if err := errors.Join(s.release(self), s.close()); err != nil {
			t.Fatal(err)
		}
		if v, err := a.Alloc(1); err != nil {
			t.Errorf("after the end of %s: %v", self, err)
		} else if err := a.Free(v); err != nil {
			t.Error(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
