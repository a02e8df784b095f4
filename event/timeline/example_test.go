package timeline_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
)

// One peer waits for the other for a tenth of each step.
func ExampleJob() {
	j := timeline.New()
	began := time.Unix(1_800_000_000, 0)
	for n := range int64(100) {
		for i, id := range []string{"fast", "slow"} {
			s := event.Step{ComputeMS: 100, StepMS: 100, Times: event.Times{Began: began}}
			if id == "fast" {
				s.ComputeMS, s.WaitMS, s.WaitFor = 90, 10, "slow"
			}
			j.Add(event.Event{Time: began.Add(100 * time.Millisecond), Peer: id, Index: i, Epoch: 1, Step: n + 1, Body: s})
		}
		began = began.Add(100 * time.Millisecond)
	}
	s := j.Snapshot()
	fmt.Println(s.Goodput.Line())
	fmt.Println("for peer", s.Stragglers()[0].ID, s.Stragglers()[0].Waited.Computing)
	// Output:
	// goodput 95 % of 2 peers' 10s: waiting 5 % (5 % for peer 1)
	// for peer slow 1s
}

// Logs of two elruns become one job. The last line of one log is cut off.
func ExampleRead() {
	const a = `{"time":"2027-01-15T08:00:01Z","event":"step","peer":"a","index":0,"epoch":1,"step":1,"microbatches":[[0,2]],"share_samples":16,"samples":32}
{"time":"2027-01-15T08:00:01.5Z","event":"step","peer":"a","ind`
	const b = `{"time":"2027-01-15T08:00:01Z","event":"step","peer":"b","index":0,"epoch":1,"step":1,"microbatches":[[2,4]],"share_samples":16,"samples":32}
`
	j := timeline.New()
	lines, err := timeline.Read(j, strings.NewReader(a), strings.NewReader(b))
	if err != nil {
		fmt.Println(err)
	}
	s := j.Snapshot()
	fmt.Println(lines.Events, "events,", lines.Cut, "line cut off,", len(s.Peers), "peers,", s.Coverage.Complete, "complete step")
	// Output: 2 events, 1 line cut off, 2 peers, 1 complete step
}

// Events of two kinds are taken from a log.
func ExampleEvents() {
	const log = `{"time":"2027-01-15T08:00:01Z","event":"notice","peer":"","index":-1,"cause":"maintenance"}
{"time":"2027-01-15T08:00:02Z","event":"note","peer":"","index":-1,"text":"hello"}
{"time":"2027-01-15T08:00:03Z","event":"restart","peer":"a","index":0,"ms":12}
`
	lines, err := timeline.Events(func(e event.Event) { fmt.Println(e.Body.Name()) }, []string{"notice", "restart"}, strings.NewReader(log))
	fmt.Println(lines.Events, err)
	// Output:
	// notice
	// restart
	// 2 <nil>
}
