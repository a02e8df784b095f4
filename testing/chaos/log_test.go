package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/elrun/elrun/event"
)

// eventLog follows the event log of one elrun. It is not safe for concurrent use.
type eventLog struct {
	path   string
	offset int64
	rest   []byte // a line that has been written in part
	events []event.Event
	step   int64 // the last that any peer has reported
	epoch  uint64
	view   event.View // of that epoch, the latest
}

// read takes in what has been written since the last time. Before elrun has made the file
// there is nothing.
func (l *eventLog) read() error {
	f, err := os.Open(l.path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, l.offset, 1<<40))
	if err != nil {
		return err
	}
	l.offset += int64(len(b))
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			l.rest = bytes.Clone(l.rest)
			return nil
		}
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		l.add(e)
		l.rest = rest
	}
}

// add takes in the next event.
func (l *eventLog) add(e event.Event) {
	l.events = append(l.events, e)
	switch body := e.Body.(type) {
	case event.Step:
		l.step = max(l.step, e.Step)
	case event.View:
		if e.Epoch > l.epoch {
			l.epoch, l.view = e.Epoch, body
		}
	}
}

// of returns the events of kind B after an instant, with their headers.
func of[B event.Body](events []event.Event, after time.Time) []event.Event {
	var out []event.Event
	for _, e := range events {
		if _, ok := e.Body.(B); ok && e.Time.After(after) {
			out = append(out, e)
		}
	}
	return out
}

// recomputed counts the microbatches that were computed again, though exact mode did not
// ask for it.
func recomputed(events []event.Event) int {
	n := 0
	for _, e := range events {
		if s, ok := e.Body.(event.Step); ok && s.Attempt == 0 {
			n += s.Recomputed
		}
	}
	return n
}
