package flight

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
)

// twinCall is a call of the slow twin of a Ring, which keeps all calls.
type twinCall struct {
	number uint64
	seq    uint32
	open   bool
	err    string
}

// A Ring has the last 1,024 calls and the last calls in progress before them, for any order of begins and ends.
func TestRingTwin(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		start := time.Unix(1000, 0)
		ring := New(start)
		r := ring.Session(1, 0, []string{"a"})
		var twin []*twinCall
		var open []*twinCall
		now := time.Duration(0)
		for range 100 + random.IntN(5000) {
			now += time.Millisecond
			if len(open) > 0 && random.IntN(100) < 40 {
				i := random.IntN(len(open))
				c := open[i]
				open = slices.Delete(open, i, i+1)
				c.open = false
				var err error
				if random.IntN(10) == 0 {
					c.err = fmt.Sprint("failure ", c.number)
					err = errors.New(c.err)
				}
				r.End(c.number, now, err)
				continue
			}
			c := &twinCall{seq: random.Uint32() &^ pointBit, open: true}
			c.number = r.Begin(&Begun{Envelope: &transport.Envelope{Seq: c.seq, Call: transport.Call{Kind: transport.KindBarrier, Root: -1}}, Peer: -1, At: now})
			twin, open = append(twin, c), append(open, c)
		}
		checkTwin(t, ring.Record(start.Add(now)), twin)
	}
}

// checkTwin compares a record with all calls.
func checkTwin(t *testing.T, got Record, twin []*twinCall) {
	t.Helper()
	recent := twin[max(0, len(twin)-Calls):]
	held := got.Calls[:len(got.Calls)-len(recent)]
	if len(held) > maxHeld || got.Total != uint64(len(twin)) {
		t.Errorf("%d held calls, %d in all, want at most %d and %d", len(held), got.Total, maxHeld, len(twin))
	}
	for i, c := range slices.Concat(held, got.Calls[len(held):]) {
		want := twin[c.Number-1]
		if i >= len(held) {
			want = recent[i-len(held)]
		}
		if c.Number != want.number || c.Seq != want.seq || c.Open != want.open || c.Error != want.err || i < len(held) && !c.Open {
			t.Fatalf("call %d of %d is %+v, want %+v", i, len(got.Calls), c, *want)
		}
	}
}

// The oldest call in progress stays in the record after more than 1,024 later calls, with the rank for which it waits.
func TestHeld(t *testing.T) {
	start := time.Unix(1000, 0)
	ring := New(start)
	r := ring.Session(4, 1, []string{"a", "b"})
	r.Origin(start.Add(time.Minute))
	e := &transport.Envelope{Comm: 5, Seq: 7 | pointBit, Call: transport.Call{Kind: transport.KindPoint, Type: dtype.F32, Count: 10, Root: -1}}
	first := r.Begin(&Begun{Envelope: e, Purpose: "halo", Peer: 0, At: time.Second})
	for range 3 * Calls {
		r.End(r.Begin(&Begun{Envelope: e, Peer: 0}), 0, nil)
	}
	r.Wait(first, Wait{For: 0, Quiet: 2 * time.Second, Culprits: []int{0}, Phase: "no answer"})
	r.Wait(first, Wait{For: 0, Quiet: 3 * time.Second})
	got := ring.Record(start.Add(time.Minute + 5*time.Second)).Calls[0]
	if got.Number != first || !got.Open || got.MS != 4000 || got.For != "halo" || got.Seq != 7 || got.Bytes != 40 || got.Comm != 5 || got.Epoch != 4 || got.Point == nil || got.Point.Peer != 0 {
		t.Errorf("got %+v", got)
	}
	if w := got.Wait; w == nil || w.For != 0 || w.QuietMS != 3000 || w.Phase != "no answer" || !slices.Equal(w.Culprits, []int{0}) {
		t.Errorf("the wait is %+v", got.Wait)
	}
	if got.String() != "Recv from rank 0 with tag 7" {
		t.Errorf("the call is %q", got)
	}
	r.End(first, time.Minute, nil)
	if got := ring.Record(start.Add(time.Hour)).Calls[0]; got.Number == first {
		t.Errorf("the call has ended and left the ring, and is in the record: %+v", got)
	}
}

// A Ring keeps its latest sessions, and a session its latest communicators.
func TestRingBounds(t *testing.T) {
	ring := New(time.Unix(0, 0))
	var r *Recorder
	for epoch := range uint64(3 * maxSessions) {
		r = ring.Session(epoch, 0, []string{"a"})
	}
	for comm := range uint64(3 * maxGroups) {
		r.Group(comm, []int{0})
	}
	got := ring.Record(time.Unix(1, 0)).Sessions
	last := got[len(got)-1]
	if len(got) != maxSessions || last.Epoch != 3*maxSessions-1 || len(last.Groups) != maxGroups || last.Groups[maxGroups-1].Comm != 3*maxGroups-1 {
		t.Errorf("%d sessions, the last %d with %d communicators", len(got), last.Epoch, len(last.Groups))
	}
}

// A nil Recorder records nothing.
func TestNilRecorder(t *testing.T) {
	var r *Recorder
	r.Origin(time.Now())
	r.Group(1, []int{0})
	r.Wait(0, Wait{})
	r.End(r.Begin(&Begun{}), 0, nil)
}
