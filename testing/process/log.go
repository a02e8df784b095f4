package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
)

// Log follows an event log while elrun writes it. Read updates its fields. A Log is not safe for concurrent use.
type Log struct {
	Path      string
	Events    []event.Event // in the order of the file
	Step      int64         // highest step that any peer has reported
	StepEpoch uint64        // epoch of the last report about that step
	View      event.View    // view with the highest epoch
	ViewEvent event.Event   // last event with that view as its body; the zero Event if there is none

	offset int64
	rest   []byte // an incomplete last line
}

// NewLog returns the event log at a path. The file need not exist yet. If the test fails, the end of the event log is written to
// the test's log.
func NewLog(t testing.TB, path string) *Log {
	t.Cleanup(func() {
		if t.Failed() {
			b, err := os.ReadFile(path)
			t.Logf("end of event log %s (%d bytes, %v):\n%s", path, len(b), err, Tail(telling(string(b)), 5000))
		}
	})
	return &Log{Path: path}
}

// Read reads what was written since the last call, and returns l. While the file does not exist, there are no events.
func (l *Log) Read(t testing.TB) *Log {
	t.Helper()
	b, err := readFrom(l.Path, l.offset)
	if err != nil {
		t.Fatal(err)
	}
	l.offset += int64(len(b))
	for b = append(l.rest, b...); ; {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole {
			l.rest = bytes.Clone(b)
			return l
		}
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %q: %v", l.Path, line, err)
		}
		l.add(e)
		b = rest
	}
}

// readFrom returns the content of a file from an offset on. A missing file has no content.
func readFrom(path string, offset int64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, offset, 1<<40))
}

// add adds the next event.
func (l *Log) add(e event.Event) {
	l.Events = append(l.Events, e)
	switch body := e.Body.(type) {
	case event.Step:
		if e.Step >= l.Step {
			l.Step, l.StepEpoch = e.Step, e.Epoch
		}
	case event.View:
		if e.Epoch >= l.ViewEvent.Epoch {
			l.ViewEvent, l.View = e, body
		}
	}
}

// Since returns the events that follow the last event before an instant. The clocks of peers may differ, so neighbouring events
// may be out of order.
func (l *Log) Since(at time.Time) []event.Event {
	for i, e := range slices.Backward(l.Events) {
		if e.Time.Before(at) {
			return l.Events[i+1:]
		}
	}
	return l.Events
}

// First returns the first event with a body of kind B for which fits returns true. ok is false if there is none.
func First[B event.Body](events []event.Event, fits func(e event.Event, b B) bool) (event.Event, bool) {
	for _, e := range events {
		if b, ok := e.Body.(B); ok && fits(e, b) {
			return e, true
		}
	}
	return event.Event{}, false
}

// After returns the events with a body of kind B after an instant.
func After[B event.Body](events []event.Event, at time.Time) []event.Event {
	var out []event.Event
	for _, e := range events {
		if _, ok := e.Body.(B); ok && e.Time.After(at) {
			out = append(out, e)
		}
	}
	return out
}

// telling returns the lines of an event log without those that come all the time.
func telling(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"event":"usage"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
