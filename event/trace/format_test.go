package trace_test

import (
	"bytes"
	"compress/gzip"
	"math"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/event/trace"
)

// ids are the short IDs of generated events.
func ids() []string { return []string{"a", "b", "c", "d", ""} }

// drawMS draws a time in milliseconds. A few make no sense.
func drawMS(t *rapid.T, name string) float64 {
	return rapid.OneOf(rapid.Float64Range(0, 50), rapid.SampledFrom([]float64{0, -1, 1e12, math.NaN(), math.Inf(1), 1e-7})).Draw(t, name)
}

// drawTime draws a time. A few make no sense.
func drawTime(t *rapid.T, name string) time.Time {
	if rapid.IntRange(0, 50).Draw(t, name+" is odd") == 0 {
		return rapid.SampledFrom([]time.Time{{}, time.Unix(-1, 0), time.Unix(math.MaxInt32*100, 0), time.Unix(1, 0)}).Draw(t, name)
	}
	return at(rapid.Float64Range(0, 1000).Draw(t, name))
}

// drawBody draws a body.
func drawBody(t *rapid.T) event.Body {
	id := rapid.SampledFrom(ids())
	who := id.Draw(t, "who")
	x := drawMS(t, "value")
	n := rapid.Int64Range(-1, 1<<40).Draw(t, "number")
	words := rapid.SampledFrom([]string{"", "lost", "\xff\x00", "a,b", "<script>"}).Draw(t, "words")
	step := event.Step{ShareSamples: int(n), Samples: int(n), Loss: x, Microbatches: [][2]int{{0, int(n)}}, ComputeMS: drawMS(t, "compute"), StepMS: drawMS(t, "step"),
		Times: event.Times{Began: drawTime(t, "began"), LostMS: x, PointMS: drawMS(t, "point"), WaitMS: drawMS(t, "wait"), WaitFor: who, CommitMS: drawMS(t, "commit")}}
	return rapid.SampledFrom([]event.Body{
		nil, step, step, step, event.View{Members: []string{who, id.Draw(t, "member")}, Reason: words}, event.Job{Job: words, Args: []string{words}, Steps: n},
		event.Member{Who: who, WhoIndex: int(n), Host: words, Machine: rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "machine"), PID: int(n % 5), OS: words},
		event.Clock{Who: who, OffsetMS: x, ErrorMS: drawMS(t, "error")}, event.Lost{Who: who, Cause: words, DetectMS: x}, event.Join{Who: who, MS: x, Bytes: n},
		event.Leave{Who: who, Reason: words}, event.Fenced{Who: who}, event.Forged{Who: who}, event.Resync{Who: who, MS: x, Bytes: n}, event.Audit{Who: []string{who}},
		event.Checkpoint{Path: words, MS: x}, event.Saving{Path: words}, event.Eval{Set: words, Loss: &x, Accuracy: &x, MS: x}, event.Quorum{State: words}, event.Done{Steps: n},
		event.Stall{Culprit: words, Phase: words, SinceMS: x, Over: n%2 == 0}, event.Parked{Who: who}, event.Notice{Cause: words}, event.Restart{MS: x}, event.Exit{PID: int(n)},
		event.Usage{RSS: n, CPUS: x, Sent: map[string]int64{words: n}, Received: map[string]int64{who: n}}, event.Dropped{Events: int(n)}, event.Other{Kind: words}, event.Note{Text: words},
	}).Draw(t, "body")
}

// Whatever the events are, the trace follows the rules of the format.
func TestFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := trace.Options{First: rapid.SampledFrom([]int64{0, 0, 3}).Draw(t, "first"), Last: rapid.SampledFrom([]int64{0, 0, 5}).Draw(t, "last")}
		var events []event.Event
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			events = append(events, event.Event{Time: drawTime(t, "time"), Peer: rapid.SampledFrom(ids()).Draw(t, "peer"), Index: rapid.IntRange(-1, 3).Draw(t, "index"),
				Epoch: rapid.Uint64Range(0, 5).Draw(t, "epoch"), Step: rapid.Int64Range(-1, 8).Draw(t, "step"), Body: drawBody(t)})
		}
		if rapid.Bool().Draw(t, "two passes") {
			o.Hosts = &trace.Hosts{}
			for _, e := range events {
				o.Hosts.Add(e)
			}
		}
		traced(t, o, events...)
	})
}

// Whatever a log has, the trace follows the rules of the format.
func FuzzTrace(f *testing.F) {
	file, err := os.Open("testdata/job.jsonl.gz")
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	in, err := gzip.NewReader(file)
	if err != nil {
		f.Fatal(err)
	}
	lines := make([]byte, 1<<13)
	n, err := in.Read(lines)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(lines[:n])
	f.Add([]byte(`{"time":"2027-01-15T08:00:01Z","event":"step","peer":"a","index":0,"epoch":1,"step":1,"step_ms":1e300,"wait_ms":-1}`))
	f.Add([]byte(`{"time":"9999-01-15T08:00:01Z","event":"clock","peer":"a","who":"b","offset_ms":1e300}`))
	f.Fuzz(func(t *testing.T, log []byte) {
		var b bytes.Buffer
		w := trace.New(&b, trace.Options{})
		_, _ = timeline.Events(w.Add, nil, bytes.NewReader(log)) // a log that looks like gzip may be broken
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		read(t, b.Bytes())
	})
}
