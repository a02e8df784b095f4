package shm

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// withEvents gives the ranks of a segment an event each, so that their lanes sleep until they are woken.
func withEvents(t rapid.TB, lanes []*Lane) (done func()) {
	t.Helper()
	var events []*Event
	for range lanes {
		b, err := NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, b)
	}
	var all []*Waker
	for _, l := range lanes {
		var wakers []*Waker
		for _, b := range events {
			r, err := OpenWaker(sent(t, b.File()))
			if err != nil {
				t.Fatal(err)
			}
			wakers = append(wakers, r)
		}
		all = append(all, wakers...)
		l.segment.UseEvents(events[l.rank], wakers)
	}
	return func() {
		for _, r := range all {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, b := range events {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// sent returns a second handle of a file, as if another process had received it.
func sent(t rapid.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// hang is the time after which a test fails because an operation has not ended.
const hang = 4 * time.Minute

// A sleeping rank is woken when the value for which it waits is there, whichever rank comes last. No third rank has to act.
func TestEventsWake(t *testing.T) {
	const n = 3
	lanes := group(t, n)
	defer withEvents(t, lanes)()
	late := time.AfterFunc(hang, func() {
		for _, l := range lanes {
			l.segment.Revoke()
		}
	})
	defer late.Stop()
	asleep := make(chan int, 100)
	for i, l := range lanes {
		l.Watch = func(rank int) {
			if rank >= 0 {
				asleep <- i
			}
		}
	}
	for round := range 30 {
		last := round % n
		met := make(chan error, n)
		meet := func(l *Lane) {
			l.Post(&Header{uint64(round)}, Offsets{})
			met <- l.AwaitAll()
		}
		for i, l := range lanes {
			if i != last {
				go meet(l)
			}
		}
		for sleeping := make(map[int]bool); len(sleeping) < n-1; {
			if i := <-asleep; i != last { // the last rank of the previous round may also report
				sleeping[i] = true
			}
		}
		go meet(lanes[last])
		for range n {
			if err := <-met; err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
	}
}

// The calls of TestCalls also have the right results if ranks sleep and are woken.
func TestCallsWithEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "ranks")
		lanes := group(t, n)
		defer withEvents(t, lanes)()
		bounds := []int{0}
		for range n {
			bounds = append(bounds, bounds[len(bounds)-1]+rapid.IntRange(0, 60_000).Draw(t, "chunk"))
		}
		for k, kind := range []string{"allreduce", "meet", "small", "gather"} {
			errs := each(n, func(rank int) error {
				return callOf(lanes[rank], uint64(k), kind, 0, bounds, Reducer[int64]{Pair: join})
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%s of %d ranks, bounds %v: %v", kind, n, bounds, err)
			}
		}
	})
}

func TestRevokeAndGoneWithEvents(t *testing.T) {
	lanes := group(t, 3)
	defer withEvents(t, lanes)()
	revokeAndGone(t, lanes)
}

// Several signals of an event cause at least one wake-up.
func TestEvent(t *testing.T) {
	b, err := NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenWaker(sent(t, b.File()))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		heard := b.count()
		r.signal()
		r.signal()
		b.sleep(heard)
	}
	heard := b.count()
	b.signal()
	b.sleep(heard)
	if err := errors.Join(b.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	b.signal() // a closed event may be signalled
}

// OpenWaker refuses files to which a write could block.
func TestOpenWakerRefuses(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := unix.SetNonblock(int(w.Fd()), false); err != nil {
		t.Fatal(err)
	}
	if waker, err := OpenWaker(w); err == nil {
		t.Errorf("took %v", waker)
	}
	if err := w.Close(); err == nil {
		t.Error("the file was left open")
	}
	if waker, err := OpenWaker(w); err == nil {
		t.Errorf("took %v of a closed file", waker)
	}
}

// A word that another process has damaged may name ranks that do not exist. wake ignores them.
func TestWakeUnknown(t *testing.T) {
	lanes := group(t, 2)
	lanes[0].segment.wake(1 << 1) // rank 1 has no event
	defer withEvents(t, lanes)()
	lanes[0].own().slots[0].posted.sleepers.Store(^uint64(0))
	lanes[0].Post(&Header{}, Offsets{})
	if got := lanes[0].own().slots[0].posted.sleepers.Load(); got != 0 {
		t.Errorf("sleepers %b", got)
	}
}
