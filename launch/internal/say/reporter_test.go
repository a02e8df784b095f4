package say

import (
	"io"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/sink"
	"github.com/elrun/elrun/launch/spec"
)

// A plain line appears for a new step, at least plainPeriod after the last one, and not while the
// job waits.
func TestShowProgressPlain(t *testing.T) {
	var out sink.Buffer
	r := NewReporter(&spec.Output{Stdout: io.Discard, Stderr: &out}, nil)
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	r.ShowProgress(at(0))
	r.Observe(stepEvent(1, 2.5, 10, 0), at(1))
	r.ShowProgress(at(2))
	r.ShowProgress(at(5))
	r.ShowProgress(at(11)) // no step since the last line
	r.Observe(stepEvent(2, 2.25, 10, 0), at(12))
	r.Observe(event.Event{Body: event.Quorum{State: "waiting"}}, at(13))
	r.ShowProgress(at(20))
	r.Observe(stepEvent(3, 2, 10, 0), at(24))
	r.ShowProgress(at(26))
	_ = r.Console.Close(t.Context(), "")
	if want := "elrun: step 1  loss 2.5\nelrun: step 3  loss 2\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// On a terminal the line is removed while the job waits.
func TestShowProgressLive(t *testing.T) {
	out := sink.Expect("loss 2.5")
	r := NewReporter(&spec.Output{Stdout: io.Discard, Stderr: out, Live: true}, nil)
	r.Observe(stepEvent(1, 2.5, 10, 0), time.Unix(1, 0))
	r.ShowProgress(time.Unix(1, 0))
	<-out.Seen
	r.Observe(event.Event{Body: event.Parked{Who: "a"}}, time.Unix(2, 0))
	r.ShowProgress(time.Unix(2, 0))
	_ = r.Console.Close(t.Context(), "")
	if want := "\r\x1b[Kstep 1  loss 2.5\r\x1b[K"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func stepEvent(n int64, loss float64, samples int, of int64) event.Event {
	return event.Event{Step: n, Body: event.Step{Loss: loss, Samples: samples, Of: of}}
}
