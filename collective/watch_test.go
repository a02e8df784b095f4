package collective

import (
	"testing"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
)

// watched returns a world of one rank with one call that has been waiting for a minute.
func watched(told func(Stall)) (*world, *operation) {
	w := &world{started: time.Now().Add(-time.Minute), ranks: 1, calls: make(map[*operation]struct{})}
	w.opts.OnStall = told
	o := &operation{Comm: &Comm{world: w, size: 1}, peer: -1}
	w.calls[o] = struct{}{}
	return w, o
}

// A process that was stopped does not blame other ranks for the lost time.
func TestExcuse(t *testing.T) {
	told := 0
	w, o := watched(func(Stall) { told++ })
	w.excuse(time.Since(w.started))
	w.lookAtAll()
	w.lookAtAll()
	if told > 0 {
		t.Errorf("blamed %d times", told)
	}
	o.progress.Store(0) // without the excuse
	w.lookAtAll()
	if w.lookAtAll(); told != 1 {
		t.Errorf("a wait of a minute was reported %d times", told)
	}
}

// A call waits for the rank from which it receives, for the rank to which it sends, or for
// the other end of a message.
func TestWaits(t *testing.T) {
	for _, test := range []struct {
		peer             int
		waiting, sending int32
		want             [2]int
	}{{-1, 0, 0, [2]int{-1, -1}}, {-1, 3, 0, [2]int{2, -1}}, {-1, 0, 3, [2]int{-1, 2}}, {-1, 1, 2, [2]int{0, 1}}, {4, 5, 0, [2]int{4, -1}}} {
		w, o := watched(nil)
		o.peer = test.peer
		o.waiting.Store(test.waiting)
		o.sending.Store(test.sending)
		if w.waits(time.Minute); o.roll.wait.For != test.want {
			t.Errorf("%+v: %v", test, o.roll.wait.For)
		}
	}
}

// A rank in another call reports the call that holds it up, unless its program does not
// wait for that call.
func TestPlace(t *testing.T) {
	asked := transport.Envelope{Seq: 7}
	for name, test := range map[string]struct {
		change func(w *world, o *operation)
		want   stall.State
		busy   bool
		waits  bool
	}{
		"in no call":                 {func(w *world, o *operation) { delete(w.calls, o) }, stall.NotYet, false, false},
		"in another call":            {func(_ *world, o *operation) { o.waiting.Store(1) }, stall.NotYet, true, true},
		"computing in another":       {func(*world, *operation) {}, stall.NotYet, true, false},
		"in that call":               {func(_ *world, o *operation) { o.env.Seq = 7; o.waiting.Store(1) }, stall.Present, true, true},
		"a receive that stays open":  {func(_ *world, o *operation) { o.peer = 0 }, stall.NotYet, false, false},
		"in a receive":               {func(_ *world, o *operation) { o.peer, o.blocking = 0, true }, stall.NotYet, true, true},
		"past it":                    {func(w *world, _ *operation) { w.seqs[0].begun = 8 }, stall.Past, false, false},
		"the communicator is closed": {func(w *world, _ *operation) { w.seqs[0].closed = true }, stall.Closed, false, false},
	} {
		w, o := watched(nil)
		w.seqs = make(map[uint64]*sequence)
		w.sequence(0, nil)
		test.change(w, o)
		p := w.place(w.waits(time.Minute), asked, time.Minute)
		if p.State != test.want || p.Busy != test.busy || (p.Wait != nil) != test.waits {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// isPast compares modulo 1<<31, so it holds across the wrap of the sequence.
func TestIsPast(t *testing.T) {
	w := &world{seqs: make(map[uint64]*sequence)}
	s := w.sequence(7, nil)
	tests := []struct {
		begun, asked uint32
		want         bool
	}{
		{0, 1, false}, {1, 1, true}, {5, 6, false}, {5, 1, true},
		{1<<31 + 2, 1<<31 - 5, true}, {1<<31 - 2, 3, false}, {1 << 31, 0, true}, {1<<32 - 1, 0, false},
	}
	for _, test := range tests {
		s.begun = test.begun
		if got := w.isPast(transport.Envelope{Comm: 7, Seq: test.asked &^ pointBit}); got != test.want {
			t.Errorf("call %d after %d: past is %v", test.asked, test.begun, got)
		}
	}
	if w.isPast(transport.Envelope{Comm: 8}) {
		t.Error("past on a communicator that is not known")
	}
}
