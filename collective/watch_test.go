package collective

import (
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
)

// waitingRank returns the watchdog of one rank with one call that has been waiting for a minute.
func waitingRank(told func(Stall)) (*watchdog, *operation) {
	ep := &endpoint{ranks: 1, tracker: tracker{started: time.Now().Add(-time.Minute), calls: make(map[*operation]struct{})}}
	ep.opts.OnStall = told
	o := &operation{Comm: &Comm{endpoint: ep, group: group{size: 1}}, peer: -1}
	ep.calls[o] = struct{}{}
	return newWatchdog(ep), o
}

// A process that was stopped does not blame other ranks for the lost time.
func TestResetClocks(t *testing.T) {
	told := 0
	w, o := waitingRank(func(Stall) { told++ })
	w.resetClocks(time.Since(w.started))
	w.checkAll()
	w.checkAll()
	if told > 0 {
		t.Errorf("blamed %d times", told)
	}
	o.lastMessage.Store(0) // as without resetClocks
	w.checkAll()
	if w.checkAll(); told != 1 {
		t.Errorf("a wait of a minute was reported %d times", told)
	}
}

// A call waits for the rank from which it receives, for the rank to which it sends, or for the peer
// of a Send or Recv.
func TestUpdateWaits(t *testing.T) {
	for _, test := range []struct {
		peer             int
		waiting, sending int32
		want             []int
	}{{-1, 0, 0, nil}, {-1, 3, 0, []int{2}}, {-1, 0, 3, []int{2}}, {-1, 1, 2, []int{0, 1}}, {4, 5, 0, []int{4}}} {
		w, o := waitingRank(nil)
		o.peer = test.peer
		o.recvFrom.Store(test.waiting)
		o.sendTo.Store(test.sending)
		if w.updateWaits(time.Minute); !slices.Equal(o.watch.wait.For, test.want) {
			t.Errorf("%+v: %v", test, o.watch.wait.For)
		}
	}
}

// The position of a rank in another call has the wait of the call that blocks the rank, unless that
// call is a Send or Recv in the background.
func TestPosition(t *testing.T) {
	asked := transport.Envelope{Seq: 7}
	for name, test := range map[string]struct {
		change func(w *watchdog, o *operation)
		want   stall.State
		busy   bool
		waits  bool
	}{
		"in no call":                 {func(w *watchdog, o *operation) { delete(w.calls, o) }, stall.NotYet, false, false},
		"in another call":            {func(_ *watchdog, o *operation) { o.recvFrom.Store(1) }, stall.NotYet, true, true},
		"computing in another":       {func(*watchdog, *operation) {}, stall.NotYet, true, false},
		"in that call":               {func(_ *watchdog, o *operation) { o.env.Seq = 7; o.recvFrom.Store(1) }, stall.Present, true, true},
		"a receive that stays open":  {func(_ *watchdog, o *operation) { o.peer, o.env.Call.Kind = 0, transport.KindPoint }, stall.NotYet, false, false},
		"in a receive":               {func(_ *watchdog, o *operation) { o.peer, o.blocking, o.env.Call.Kind = 0, true, transport.KindPoint }, stall.NotYet, true, true},
		"past it":                    {func(w *watchdog, _ *operation) { w.sequences[0].lastSeq = 8 }, stall.Past, false, false},
		"the communicator is closed": {func(w *watchdog, _ *operation) { w.sequences[0].closed = true }, stall.Closed, false, false},
	} {
		w, o := waitingRank(nil)
		w.sequences = make(map[uint64]*sequence)
		w.sequence(0, nil)
		test.change(w, o)
		p := w.position(w.updateWaits(time.Minute), asked, 0, time.Minute)
		if p.State != test.want || p.Busy != test.busy || (p.Wait != nil) != test.waits {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// hasBegun compares modulo 1<<31, so it is right after the sequence number has wrapped.
func TestHasBegun(t *testing.T) {
	ep := &endpoint{sequences: make(map[uint64]*sequence)}
	s := ep.sequence(7, nil)
	tests := []struct {
		begun, asked uint32
		want         bool
	}{
		{0, 1, false}, {1, 1, true}, {5, 6, false}, {5, 1, true},
		{1<<31 + 2, 1<<31 - 5, true}, {1<<31 - 2, 3, false}, {1 << 31, 0, true}, {1<<32 - 1, 0, false},
	}
	for _, test := range tests {
		s.lastSeq = test.begun
		if got := ep.hasBegun(transport.Envelope{Comm: 7, Seq: test.asked &^ pointBit}); got != test.want {
			t.Errorf("call %d after %d: past is %v", test.asked, test.begun, got)
		}
	}
	if ep.hasBegun(transport.Envelope{Comm: 8}) {
		t.Error("past on a communicator that is not known")
	}
}

// arrivals is a Matcher whose answers are fixed.
type arrivals struct{ awaits, full bool }

func (a arrivals) Awaits(int, transport.Envelope) bool { return a.awaits }
func (a arrivals) Full(int) bool                       { return a.full }

// A tell proves that a Recv cannot end only if no message of its sender can be in flight. It proves
// that a Send cannot end only if the receiver has read nothing for long.
func TestFirm(t *testing.T) {
	for name, test := range map[string]struct {
		sends, overtook, awaits, full bool
		match                         *matching
		quiet                         time.Duration
		want                          bool
	}{
		"nothing has come":             {awaits: true, quiet: time.Second, want: true},
		"the message has come":         {quiet: time.Minute},
		"the message may be in flight": {awaits: true, overtook: true, quiet: time.Minute},
		"another receive of tag 0":     {awaits: true, match: &matching{from: 1, tag: AnyTag}, quiet: time.Minute},
		"behind a receive of its tag":  {awaits: true, match: &matching{from: 1, tag: 0}, quiet: time.Second, want: true},
		"full":                         {sends: true, full: true, quiet: fullAfter, want: true},
		"full, and overtook":           {sends: true, full: true, overtook: true, quiet: fullAfter, want: true},
		"full since a moment":          {sends: true, full: true, quiet: fullAfter - 1},
		"not full":                     {sends: true, quiet: time.Minute},
	} {
		w, o := waitingRank(nil)
		w.matcher = arrivals{awaits: test.awaits}
		o.peer, o.sends, o.match, o.watch = 1, test.sends, test.match, new(watchState)
		now := time.Hour
		o.watch.wait.Since = now - test.quiet
		got := w.isFirm(o, transport.Signal{From: 1, Overtook: test.overtook}, &stall.Signal{At: now, Full: test.full}, now)
		if got != test.want {
			t.Errorf("%s: firm is %v", name, got)
		}
	}
}
