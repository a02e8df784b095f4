package inpeer

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/sink"
	"github.com/elrun/elrun/launch/spec"
)

// A program alone shows its progress each five seconds, and as its last line the result.
func TestSoloReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		r := newSoloReport(spec.Output{Stdout: &out, Stderr: &errs})
		for i := range int64(12) {
			<-time.After(time.Second + time.Millisecond)
			r.Emit(event.Event{Step: i + 1, Body: event.Step{Samples: 10, Of: 12, Metrics: map[string]float64{"loss": 0.5}}})
		}
		r.Emit(event.Event{Body: event.Done{Steps: 12, Peers: 1, SHA256: "0a"}})
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		want := "elrun: step 4/12  loss 0.5  8 samples/s  11s left\nelrun: step 9/12  loss 0.5  9 samples/s  3s left\n"
		if out.String() != "done steps=12 peers=1 sha256=0a\n" || errs.String() != want {
			t.Errorf("output %q, errors %q, want %q", out.String(), errs.String(), want)
		}
	})
}

// A program alone that ends early has no result.
func TestSoloWithoutResult(t *testing.T) {
	var out, errs bytes.Buffer
	r := newSoloReport(spec.Output{Stdout: &out, Stderr: &errs})
	r.Emit(event.Event{Step: 1, Body: event.Step{}})
	if err := r.Close(); err != nil || out.Len()+errs.Len() > 0 {
		t.Errorf("%v, output %q, errors %q", err, out.String(), errs.String())
	}
}

// A result that cannot be written is an error of Close.
func TestSoloOutputBroken(t *testing.T) {
	var errs bytes.Buffer
	r := newSoloReport(spec.Output{Stdout: sink.Broken{Err: errors.New("no space")}, Stderr: &errs})
	r.Emit(event.Event{Body: event.Done{Steps: 1, Peers: 1}})
	if err := r.Close(); err == nil {
		t.Error("no error")
	}
}
