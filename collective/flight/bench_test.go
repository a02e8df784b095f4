package flight_test

import (
	"testing"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/collective/transport"
)

// recordOne records a call as package collective does.
func recordOne(r *flight.Recorder, e *transport.Envelope, from time.Time) {
	n := r.Begin(&flight.Begun{Envelope: e, Purpose: "bucket 2 of 7", Peer: -1, At: time.Since(from)})
	r.End(n, time.Since(from), nil)
}

func envelope() *transport.Envelope {
	return &transport.Envelope{Comm: 7, Seq: 9, Call: transport.Call{Kind: transport.KindAllReduce, Root: -1, Count: 1000, Segment: 1 << 18}}
}

// BenchmarkRecord measures the record of a call: its begin and its end, each with the time.
func BenchmarkRecord(b *testing.B) {
	from := time.Now()
	ring := flight.New(from)
	ring.Mirror(make([]byte, flight.MirrorSize))
	r := ring.Session(1, 0, []string{"a", "b"})
	e := envelope()
	b.ReportAllocs()
	for b.Loop() {
		recordOne(r, e, from)
	}
}

// A full ring allocates no memory for a call.
func TestAllocations(t *testing.T) {
	from := time.Now()
	ring := flight.New(from)
	ring.Mirror(make([]byte, flight.MirrorSize))
	r := ring.Session(1, 0, []string{"a", "b"})
	e := envelope()
	for range flight.Calls {
		recordOne(r, e, from)
	}
	n := testing.AllocsPerRun(2, func() {
		for range flight.Calls {
			recordOne(r, e, from)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for %d calls, want none", n, flight.Calls)
	}
}
