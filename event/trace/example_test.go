package trace_test

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/event/trace"
	"github.com/elrun/elrun/testing/perfetto"
)

// A step of a peer becomes a slice, with a slice for each part of it.
func ExampleNew() {
	var file bytes.Buffer
	w := trace.New(&file, trace.Options{})
	began := time.Unix(1_800_000_000, 0)
	w.Add(event.Event{Time: began.Add(12 * time.Millisecond), Peer: "a", Epoch: 1, Step: 1, Body: event.Step{
		ComputeMS: 8, StepMS: 10, Times: event.Times{Began: began, WaitMS: 2, WaitFor: "b"}}})
	if err := w.Close(); err != nil {
		fmt.Println(err)
	}
	t, err := perfetto.Read(file.Bytes())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range t.Of("a", "step")[0].Events {
		fmt.Println(strings.Repeat("  ", e.Depth)+e.Name, time.Duration(e.End-e.Begin))
	}
	// Output:
	// step 1 10ms
	//   compute 8ms
	//   wait 2ms
}

// A first pass over the logs tells the offset of a host before it is needed.
func ExampleHosts() {
	const log = `{"time":"2027-01-15T08:00:01Z","event":"member","peer":"a","index":0,"who":"a","who_index":0,"host":"one","os":"linux"}
{"time":"2027-01-15T08:00:02Z","event":"member","peer":"a","index":0,"who":"b","who_index":0,"host":"two"}
{"time":"2027-01-15T08:01:00Z","event":"clock","peer":"a","index":0,"who":"b","offset_ms":1500,"error_ms":0.2}
`
	var hosts trace.Hosts
	if _, err := timeline.Events(hosts.Add, trace.HostKinds(), strings.NewReader(log)); err != nil {
		fmt.Println(err)
	}
	offset, most, known := hosts.Offset("b", time.Date(2027, 1, 15, 8, 0, 3, 0, time.UTC))
	fmt.Println(offset, most, known)
	// Output: 1.5s 200µs true
}
