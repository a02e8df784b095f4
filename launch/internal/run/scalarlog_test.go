package run

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/spec"
)

// The files have a row for each step, at its first report, and for each evaluation.
func TestScalarLog(t *testing.T) {
	dir := t.TempDir()
	o := &spec.Options{Output: spec.Output{Scalars: dir}}
	l, err := (&scalarLog{say: t.Errorf}).start(o)
	if err != nil {
		t.Fatal(err)
	}
	model, at := timeline.New(), time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	accuracy := 0.75
	for i, e := range []event.Event{
		{Peer: "a", Epoch: 1, Body: event.View{Members: []string{"a", "b"}}},
		{Peer: "a", Epoch: 1, Step: 1, Body: event.Step{Loss: 2, LR: 0.5, Samples: 64, StepMS: 10, Metrics: map[string]float64{"right": 3}}},
		{Peer: "b", Epoch: 1, Step: 1, Body: event.Step{Loss: 2, LR: 0.5, Samples: 64, StepMS: 20}},
		{Peer: "a", Epoch: 1, Step: 1, Body: event.Eval{Set: "test", Samples: 100, Accuracy: &accuracy}},
		{Peer: "b", Epoch: 1, Step: 2, Body: event.Step{Loss: 1, Samples: 64, StepMS: 30}},
	} {
		e.Time = at.Add(time.Duration(i) * time.Second)
		model.Add(e)
		l.offer(e, model)
	}
	l.finish(time.Minute)
	text, err := os.ReadFile(filepath.Join(dir, "steps.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if want := [][]string{
		{"step", "time", "learning_rate", "loss", "members", "reported/right", "samples", "step_ms", "evaluation/test/accuracy", "samples_per_s"},
		{"1", "2030-01-02T03:04:06.000Z", "0.5", "2", "2", "3", "64", "10", "", ""},
		{"1", "2030-01-02T03:04:08.000Z", "", "", "", "", "", "", "0.75", ""},
		{"2", "2030-01-02T03:04:09.000Z", "", "1", "2", "", "64", "30", "", "21.3333333"},
	}; err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("got  %q, %v\nwant %q", rows, err, want)
	}
}

// A folder that cannot be made ends the start of the job.
func TestScalarLogFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := (&scalarLog{say: t.Errorf}).start(&spec.Options{Output: spec.Output{Scalars: file}})
	if l != nil || err == nil {
		t.Errorf("got %v, %v", l, err)
	}
	l.offer(event.Event{Step: 1, Body: event.Step{}}, nil)
	l.finish(0)
}
