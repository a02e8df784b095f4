package run

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/spec"
)

// The file has a slice for each step.
func TestTraceLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.pftrace")
	l, err := (&traceLog{say: t.Errorf}).start(&spec.Options{Output: spec.Output{Trace: file}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(3) {
		l.offer(event.Event{Time: time.Unix(1_800_000_000+n, 0), Peer: "a", Epoch: 1, Step: n + 1, Body: event.Step{StepMS: 10, ComputeMS: 10}})
	}
	l.finish(time.Minute)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"step 1", "step 2", "step 3"} { // names of slices are plain text in the file
		if !bytes.Contains(b, []byte(name)) {
			t.Errorf("no %s", name)
		}
	}
}

// Events that the disk is too slow for are left out, and then an event tells how many.
func TestTraceLogTooSlow(t *testing.T) {
	l := &traceLog{events: make(chan event.Event, 2)}
	for n := range int64(5) {
		l.offer(event.Event{Step: n, Body: event.Complete{}})
	}
	<-l.events
	<-l.events
	l.offer(event.Event{Step: 5, Body: event.Complete{}})
	if e := <-l.events; e.Body != (event.Dropped{Events: 3}) {
		t.Errorf("after a gap of 3 events the trace has %+v", e)
	}
	if e := <-l.events; e.Step != 5 {
		t.Errorf("then it has %+v", e)
	}
}

// A file that cannot be made ends the start of the job.
func TestTraceLogFails(t *testing.T) {
	l, err := (&traceLog{say: t.Errorf}).start(&spec.Options{Output: spec.Output{Trace: filepath.Join(t.TempDir(), "none", "run.pftrace")}})
	if !errors.Is(err, fs.ErrNotExist) || l != nil {
		t.Errorf("error %v", err)
	}
}
