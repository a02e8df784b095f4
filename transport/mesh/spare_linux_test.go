package mesh

import (
	"testing"
	"time"

	"github.com/elrun/elrun/internal/shm"
)

// Reserved memory is given out once, if it is large enough; otherwise it is released.
func TestSpare(t *testing.T) {
	keepsFiles(t)
	var s spare
	take := func(size, want int) *shm.Memory {
		t.Helper()
		m, err := s.take(size)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(m.Bytes()); got != want {
			t.Errorf("took %d bytes, want %d", got, want)
		}
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
		return m
	}
	const page = 4096
	s.fill(3 * page)
	reserved := s.memory
	s.fill(2 * page) // that much is reserved already
	first := take(2*page, 3*page)
	if first != reserved {
		t.Error("took other memory than what was reserved")
	}
	first.Bytes()[0] = 1
	if again := take(2*page, 2*page); again.Bytes()[0] != 0 || !s.isEmpty() {
		t.Error("the same memory twice")
	}
	s.fill(page)
	take(2*page, 2*page) // more than is reserved
	if !s.isEmpty() {
		t.Error("too little memory is still there")
	}
	s.fill(page)
	s.fill(2 * page)
	take(page, 2*page)
	s.fill(page)
	if s.fill(0); !s.isEmpty() {
		t.Error("it is kept in vain")
	}
	s.fill(page)
	if err := s.close(); err != nil || !s.isEmpty() {
		t.Errorf("it is kept after the end, %v", err)
	}
	if s.fill(page); !s.isEmpty() {
		t.Error("it is there after the end")
	}
}

// The first rank of a host reserves memory for the next view, with room for one more rank, and uses it there. Other
// ranks reserve none, and no rank does when it is alone on its host.
func TestSpareOfFirst(t *testing.T) {
	keepsFiles(t)
	hs, v := startOnHost(t, "auto", "auto", "auto")
	ts := mustMeet(t, hs, v)
	reserved := func(m *Mesh) func() bool { return func() bool { return !m.memory.spare.isEmpty() } }
	await(t, "memory at rank 0", reserved(hs[0]))
	spare := hs[0].memory.spare.memory
	if len(spare.Bytes()) < shm.Size(3) || len(spare.Bytes()) < shm.Size(4) {
		t.Errorf("%d bytes are reserved, want %d for four ranks", len(spare.Bytes()), shm.Size(4))
	}
	next := following(v, 1, 2) // the process of rank 1 becomes the first
	later := mustMeet(t, hs[1:], next)
	await(t, "memory at rank 1", reserved(hs[1]))
	if !hs[2].memory.spare.isEmpty() {
		t.Error("a rank that is not the first has reserved memory")
	}
	endAll(t, append(ts, later...))
	last := following(next, 0)
	last.Members = v.Members
	last.Epoch++
	ts = mustMeet(t, hs, last)
	await(t, "that rank 1 gives its memory back", func() bool { return hs[1].memory.spare.isEmpty() })
	s, err := hs[0].memory.spare.take(shm.Size(3))
	if err != nil || s == spare {
		t.Errorf("the memory of a view is there for another one, %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	endAll(t, ts)
	closeAll(t, hs)
}

// If a view ends early, the first rank reserves memory for the next view at once.
func TestSpareAtEnd(t *testing.T) {
	keepsFiles(t)
	hs, v := startOnHost(t, "auto", "auto")
	hs[0].memory.spareAfter = 2 * hang
	ts := mustMeet(t, hs, v)
	if !hs[0].memory.spare.isEmpty() {
		t.Error("memory is reserved while the view is used")
	}
	endAll(t, ts)
	await(t, "memory at rank 0", func() bool { return !hs[0].memory.spare.isEmpty() })
	closeAll(t, hs)
}

// await waits until there returns true, which another goroutine is about to cause.
func await(t *testing.T, what string, there func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); !there(); <-tick.C {
		if time.Since(begun) > hang {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
