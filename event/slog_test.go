package event_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
)

// A program sees lost peers and stalls in its own log.
func ExampleSlog() {
	h := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	var sink event.Sink = event.Slog{Handler: h}
	sink.Emit(event.Event{Time: time.Now(), Peer: "mJ4kQz7p", Epoch: 3, Body: event.Lost{Who: "Xk29vLrt", Cause: "exit"}})
	sink.Emit(event.Event{Time: time.Now(), Peer: "mJ4kQz7p", Step: 7, Body: event.Step{Loss: 0.3}}) // below the level of h
	// Output: level=WARN msg=lost peer=mJ4kQz7p index=0 epoch=3 who=Xk29vLrt cause=exit detect_ms=0
}

// failing is a handler that fails.
type failing struct{ slog.Handler }

func (failing) Handle(context.Context, slog.Record) error { return errors.New("full") }

// Each kind of event is a record with its fields. An event without a body, and a handler that fails or is missing, do no harm.
func TestSlog(t *testing.T) {
	var out strings.Builder
	h := slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})
	s := event.Slog{Handler: h}
	for _, e := range []event.Event{
		{Index: event.NoPeer, Body: event.Note{Text: "a line"}},
		{Peer: "a", Step: 7, Body: event.Step{Loss: 0.5, Microbatches: [][2]int{{0, 2}}}},
		{Peer: "a", Body: event.Step{Loss: math.NaN()}},
		{Peer: "a", Body: event.Stall{Culprit: "b", Over: true}},
		{Peer: "a"},
	} {
		s.Emit(e)
		event.Slog{Handler: failing{h}}.Emit(e)
		event.Slog{}.Emit(e)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{`"INFO","msg":"note","text":"a line"}`, `"microbatches":[[0,2]]`, `"error":`, `"INFO","msg":"stall"`} {
		if len(lines) != 4 || !strings.Contains(lines[i], want) {
			t.Fatalf("%d lines: %q\nwant %s", len(lines), lines, want)
		}
	}
}
