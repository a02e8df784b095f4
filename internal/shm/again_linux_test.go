package shm

import (
	"os"
	"testing"

	"github.com/elrun/elrun/internal/cores"
)

// A third process may get the file of an event from the owner or from a process with a waker. In
// both cases its signals wake the same sleepers.
func TestEventFileAgain(t *testing.T) {
	e, err := NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	open := func(f *os.File, err error) *Waker {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		w, err := OpenWaker(f)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	second := open(e.Again())
	third := open(second.Again())
	for i, w := range []*Waker{second, third} {
		w.signal()
		e.sleep(uint64(i)) // until signal i has come
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if f, err := second.Again(); err == nil {
		t.Errorf("%s of a waker that is closed", f.Name())
	}
}

// A process reads the properties of the machine once, and they apply to each segment that it
// attaches.
func TestMachine(t *testing.T) {
	real := ReadMachine()
	if real.processors != cores.Count() || real.cacheBytes != largestCache() {
		t.Errorf("read %+v", real)
	}
	for _, m := range []Machine{{processors: 1}, {processors: 2, cacheBytes: 1 << 30}, {processors: 3}} {
		s, err := m.Attach(Ordinary(Size(3)), nil, 3, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.UseEvents(new(Event), nil)
		if p := s.policies(3); p.busyPoll != (m.processors >= 3) || p.stealing != (m.processors < 2) || s.cacheLimit != nonTemporalFrom(m.cacheBytes) {
			t.Errorf("%+v: busy-poll %v, stealing %v, results of %d bytes", m, p.busyPoll, p.stealing, s.cacheLimit)
		}
	}
}

// Memory of the largest size has room for any number of ranks up to its own.
func TestLargestSize(t *testing.T) {
	for n := range MaxRanks + 3 {
		size := LargestSize(n)
		for ranks := 1; ranks <= min(n, MaxRanks); ranks++ {
			if Size(ranks) > size {
				t.Errorf("%d bytes for up to %d ranks, of which %d take %d", size, n, ranks, Size(ranks))
			}
		}
	}
}
