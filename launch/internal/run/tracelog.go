package run

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/trace"
	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/launch/spec"
)

// traceLog writes the events of the launcher as a trace to the file of Output.Trace, in a goroutine of its own, since a
// disk may be slow. The launcher's loop calls offer. A nil traceLog does nothing.
type traceLog struct {
	say     func(format string, args ...any)
	events  chan event.Event
	ended   chan struct{}
	dropped int // events that are left out since the last one that is not
}

// maxTraced bounds the events that wait for the disk.
const maxTraced = 1 << 14

// start opens the file and starts the goroutine, which finish ends; say is set. It returns nil if the options ask
// for no trace.
func (t *traceLog) start(o *spec.Options) (*traceLog, error) {
	if o.Output.Trace == "" {
		return nil, nil
	}
	f, err := private.Create(o.Output.Trace)
	if err != nil {
		return nil, fmt.Errorf("launch: file of the trace: %w", err)
	}
	t.events, t.ended = make(chan event.Event, maxTraced), make(chan struct{})
	go t.run(f)
	return t, nil
}

// offer traces an event. It does not block: while maxTraced events wait, further ones are left out, and the trace says so.
func (t *traceLog) offer(e event.Event) {
	if t == nil {
		return
	}
	if t.dropped > 0 {
		select {
		case t.events <- event.Event{Time: e.Time, Index: event.NoPeer, Body: event.Dropped{Events: t.dropped}}:
			t.dropped = 0
		default:
			t.dropped++
			return
		}
	}
	select {
	case t.events <- e:
	default:
		t.dropped++
	}
}

// run writes the trace until events is closed, and then ends it.
func (t *traceLog) run(f *os.File) {
	defer close(t.ended)
	w := trace.New(f, trace.Options{})
	for e := range t.events {
		w.Add(e)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.say("--trace: %v", err)
	}
}

// finish waits until the trace is written, but no longer than the patience.
func (t *traceLog) finish(patience time.Duration) {
	if t == nil {
		return
	}
	close(t.events)
	select {
	case <-t.ended:
	case <-time.After(patience):
		t.say("--trace: the disk is too slow, so the end of the trace may be missing")
	}
}
