package trace_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/event/trace"
	"github.com/elrun/elrun/testing/perfetto"
)

// The tests of this package have one flag:
//
//	go test ./event/trace -run Golden -update   write the golden trace anew
func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden trace anew")
	flag.Parse()
	os.Exit(m.Run())
}

// start is the begin of the jobs of these tests.
func start() time.Time { return time.Unix(1_800_000_000, 0) }

// at returns a time of a job.
func at(ms float64) time.Time { return start().Add(time.Duration(ms * 1e6)) }

// fataler is a test, also one of package rapid.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// traced returns the trace of events, which passes the checks.
func traced(t fataler, o trace.Options, events ...event.Event) *perfetto.Trace {
	t.Helper()
	var b bytes.Buffer
	w := trace.New(&b, o)
	for _, e := range events {
		w.Add(e)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return read(t, b.Bytes())
}

// read reads a trace, which passes the checks.
func read(t fataler, b []byte) *perfetto.Trace {
	t.Helper()
	got, err := perfetto.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// member returns the event of a peer that its elrun has started.
func member(ms float64, id string, index int, host string) event.Event {
	return event.Event{Time: at(ms), Peer: id, Index: index, Body: event.Member{Who: id, WhoIndex: index, Host: host, Launcher: "elrun of " + host,
		PID: 100 + index, OS: "linux", Arch: "amd64", Cores: 2, Elrun: "1"}}
}

// view returns the event of a view.
func view(ms float64, id string, epoch uint64, reason string, members ...string) event.Event {
	return event.Event{Time: at(ms), Peer: id, Epoch: epoch, Body: event.View{Members: members, Voters: members, Reason: reason}}
}

// step returns a step of 10 ms, which is reported 5 ms after its end.
func step(began float64, id string, epoch uint64, n int64, waitFor string) event.Event {
	b := event.Step{Microbatches: [][2]int{{0, 2}}, ShareSamples: 16, Samples: 32, Loss: 1 / float64(n), ComputeMS: 5, StepMS: 10,
		Times: event.Times{Began: at(began), PointMS: 0.5, DataMS: 0.5, WaitMS: 2, WaitFor: waitFor, ReduceMS: 1, ApplyMS: 0.5, CommitMS: 0.5}}
	return event.Event{Time: at(began + 15), Peer: id, Epoch: epoch, Step: n, Body: b}
}

// small returns the events of a small job: a peer is lost, and another one joins.
func small() []event.Event {
	loss := 0.5
	return []event.Event{
		{Time: at(0), Index: event.NoPeer, Body: event.Job{Job: "small", Elrun: "1", Program: "train", Args: []string{"-x"}, Steps: 3}},
		member(1, "a", 0, "one"), member(1, "b", 1, "one"),
		view(2, "a", 1, "start", "a", "b"), view(3, "b", 1, "start", "a", "b"),
		{Time: at(4), Peer: "a", Body: event.Usage{CPUS: 1, RSS: 1000, Sent: map[string]int64{"shm": 10}}},
		step(10, "a", 1, 1, "b"), step(10.5, "b", 1, 1, ""),
		{Time: at(29), Peer: "a", Epoch: 1, Step: 1, Body: event.Eval{Set: "test", Samples: 10, Loss: &loss, MS: 3}},
		{Time: at(29.5), Peer: "a", Epoch: 1, Step: 1, Body: event.Checkpoint{Path: "c", MS: 5}},
		{Time: at(31), Peer: "a", Epoch: 2, Body: event.Lost{Who: "b", Cause: "exit", DetectMS: 4}},
		view(32, "a", 2, "lost", "a"),
		step(40, "a", 2, 2, ""),
		{Time: at(45), Peer: "b", Index: 1, Body: event.Exit{PID: 101, Status: -1, Signal: 9}},
		member(46, "c", 1, "one"),
		view(50, "a", 3, "join", "a", "c"),
		{Time: at(50), Peer: "a", Epoch: 3, Body: event.Join{Who: "c", Reason: "admitted"}},
		{Time: at(52), Peer: "c", Index: 1, Epoch: 3, Body: event.Join{Who: "c", Bytes: 2000, MS: 4}},
		{Time: at(54), Peer: "a", Body: event.Usage{CPUS: 1.01, RSS: 1100, Sent: map[string]int64{"shm": 60}}},
		step(55, "a", 3, 3, "c"), step(55, "c", 3, 3, ""),
		{Time: at(71), Peer: "c", Index: 1, Epoch: 3, Body: event.Stall{Culprit: "a", Phase: "computing", What: "sum", SinceMS: 20, Over: true}},
		{Time: at(75), Index: event.NoPeer, Body: event.Notice{Cause: "a test"}},
	}
}

// The trace of a small job, as text.
func TestGolden(t *testing.T) {
	const file = "testdata/small.txt"
	got := traced(t, trace.Options{}, small()...).Text()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A flow leads from the computing of the last peer of a step to the wait of each other one, also if the wait is written first.
func TestFlows(t *testing.T) {
	got := traced(t, trace.Options{}, member(1, "a", 0, "one"), member(1, "b", 1, "one"), member(1, "c", 2, "one"), view(2, "a", 1, "start", "a", "b", "c"),
		step(10, "a", 1, 1, "b"), step(10, "b", 1, 1, ""), step(10, "c", 1, 1, "b"), step(30, "a", 1, 2, "c"), step(30, "b", 1, 2, "c"), step(30, "c", 1, 2, ""))
	ends := make(map[uint64][]string)
	for _, track := range got.Of("", "step") {
		name := ""
		for _, e := range track.Events {
			if e.Category == "step" {
				name = e.Name
			}
			for _, id := range e.Flows {
				ends[id] = append(ends[id], fmt.Sprintf("%s of %s in %s", e.Name, processOf(got, track), name))
			}
		}
	}
	var flows []string
	for _, of := range ends {
		flows = append(flows, strings.Join(of, ", "))
	}
	slices.Sort(flows)
	want := []string{
		"compute of 1 b @ one in step 1, wait of 2 c @ one in step 1",
		"wait of 0 a @ one in step 1, compute of 1 b @ one in step 1",
		"wait of 0 a @ one in step 2, compute of 2 c @ one in step 2",
		"wait of 1 b @ one in step 2, compute of 2 c @ one in step 2",
	}
	if !slices.Equal(flows, want) {
		t.Errorf("got %q", flows)
	}
}

// A view that begins after the steps of a trace ends the one before.
func TestViewAfterLast(t *testing.T) {
	got := traced(t, trace.Options{First: 1, Last: 1}, member(1, "a", 0, "one"), view(2, "a", 1, "start", "a"), step(10, "a", 1, 1, ""), step(20, "a", 1, 2, ""), view(50, "a", 2, "lost", "a"))
	if views := got.Of("job", "epochs"); len(views) != 1 || len(views[0].Events) != 1 || views[0].Events[0].End == views[0].Events[0].Begin {
		t.Errorf("got\n%s", got.Text())
	}
}

// processOf returns the name of the process of a track.
func processOf(of *perfetto.Trace, track *perfetto.Track) string {
	for _, p := range of.Tracks {
		if p.ID == track.Parent {
			return p.Name
		}
	}
	return ""
}

// The parts of each step of a real job add up to it.
func TestPartsAddUp(t *testing.T) {
	f, err := os.Open("testdata/job.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	w := trace.New(&b, trace.Options{})
	found, err := timeline.Events(w.Add, nil, f)
	if err = errors.Join(err, w.Close()); err != nil || found.Malformed > 0 {
		t.Fatal(found, err)
	}
	steps := 0
	for _, track := range read(t, b.Bytes()).Of("", "step") {
		if len(track.Events) == 0 {
			t.Error("a peer without steps")
		}
		for i, e := range track.Events {
			if e.Category != "step" {
				continue
			}
			steps++
			sum := uint64(0)
			for _, part := range track.Events[i+1:] {
				if part.Depth == 0 {
					break
				}
				sum += part.End - part.Begin
			}
			if length := e.End - e.Begin; float64(sum) < 0.95*float64(length) || sum > length {
				t.Errorf("%s of %d ns has parts of %d ns", e.Name, length, sum)
			}
		}
	}
	if steps < 100 {
		t.Errorf("%d steps", steps)
	}
}

// A range of steps has these steps of all peers, and what happens meanwhile.
func TestRange(t *testing.T) {
	got := traced(t, trace.Options{First: 2, Last: 2}, small()...)
	var names []string
	for _, track := range got.Tracks {
		for _, e := range track.Events {
			if e.Kind != "count" && e.Depth == 0 {
				names = append(names, e.Name)
			}
		}
	}
	want := []string{"exit", "join", "epoch 2", "epoch 3", "peer", "step 2", "peer", "copy of state"}
	if !slices.Equal(names, want) {
		t.Errorf("the trace has %q, want %q", names, want)
	}
}

// Times of another host are on the clock of the first one, also before the first measurement of the offset, and while the
// offset changes.
func TestClocks(t *testing.T) {
	ahead := func(e event.Event, ms float64) event.Event {
		d := time.Duration(ms * 1e6)
		e.Time = e.Time.Add(d)
		if b, ok := e.Body.(event.Step); ok {
			b.Began = b.Began.Add(d)
			e.Body = b
		}
		return e
	}
	clock := func(ms, offset, err float64) event.Event {
		return event.Event{Time: at(ms), Peer: "a", Body: event.Clock{Who: "b", OffsetMS: offset, ErrorMS: err}}
	}
	events := []event.Event{member(0, "a", 0, "one"), ahead(member(1, "b", 0, "two"), 5000), view(2, "a", 1, "start", "a", "b"),
		step(10, "a", 1, 1, ""), ahead(step(10, "b", 1, 1, ""), 5000), clock(1000, 5000, 0.25), step(1500, "a", 1, 2, ""), ahead(step(1500, "b", 1, 2, ""), 5002.5),
		clock(2000, 5005, 0.5)}
	var hosts trace.Hosts
	for _, e := range events {
		hosts.Add(e)
	}
	got := traced(t, trace.Options{Hosts: &hosts}, events...)
	one, two := got.Of("0 a @ one", "step"), got.Of("0 b @ two", "step")
	if len(one) != 1 || len(two) != 1 || len(one[0].Events) != len(two[0].Events) {
		t.Fatal(got.Text())
	}
	for i, e := range one[0].Events {
		difference := int64(e.Begin) - int64(two[0].Events[i].Begin)
		if limit := int64(25_000); difference > limit || difference < -limit { // the clock of b is faster by 0.5 %
			t.Errorf("%s at %d and %d", e.Name, e.Begin, two[0].Events[i].Begin)
		}
	}
	if offset, err, ok := hosts.Offset("a", at(0)); offset != 0 || err != 0 || !ok {
		t.Errorf("offset of the first host %v, error %v, %v", offset, err, ok)
	}
}

// failing is a file on a disk that is full.
type failing struct{}

// Write fails.
func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// Close reports that the file cannot be written.
func TestFullDisk(t *testing.T) {
	w := trace.New(failing{}, trace.Options{})
	for _, e := range small() {
		w.Add(e)
	}
	if err := w.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v", err)
	}
}

// BenchmarkAdd measures the report of a step.
func BenchmarkAdd(b *testing.B) {
	w := trace.New(io.Discard, trace.Options{})
	for n := range int64(b.N) {
		w.Add(step(10*float64(n), "a", 1, n+1, "b"))
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}
