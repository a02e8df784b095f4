package flight_test

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/collective/transport"
)

// Two ranks make a call, and only one of them begins the next one.
func Example() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	members := []string{"ann", "bob"}
	var records []flight.Record
	for rank, name := range members {
		ring := flight.New(start)
		calls := ring.Session(1, rank, members)
		// Package collective makes these calls, with Options.Record.
		barrier := transport.Call{Kind: transport.KindBarrier, Root: -1}
		first := calls.Begin(&flight.Begun{Envelope: &transport.Envelope{Seq: 1, Call: barrier}, Peer: -1, At: time.Second})
		calls.End(first, 2*time.Second, nil)
		if name == "ann" {
			calls.Begin(&flight.Begun{Envelope: &transport.Envelope{Seq: 2, Call: barrier}, Peer: -1, At: 3 * time.Second})
		}
		r := ring.Record(start.Add(5 * time.Second))
		r.Peer, r.Index = name, rank
		records = append(records, r)
	}
	v := flight.Judge(flight.Job{}, records)
	fmt.Println(v.Cause)
	fmt.Println(v.Text)
	// Output:
	// absent
	// rank 1 (peer 1, bob) has not begun call 2, its last was 1; rank 0 waits 2.0 s in call 2 (barrier)
}
