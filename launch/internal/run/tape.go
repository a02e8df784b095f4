package run

import (
	"encoding/json"
	"time"

	"github.com/elrun/elrun/event"
)

// tape keeps the latest events for those who ask for them again and again, while somebody does. The launcher's loop owns it.
// The zero value is ready.
type tape struct {
	asked time.Time // when somebody asked last; zero for nobody
	lines []json.RawMessage
	bytes int
	next  int64 // number of the next event
}

const (
	// maxTape bounds the bytes of the events that are kept. All of them fit into an answer.
	maxTape = 8 << 20
	// tapePeriod is the time after the last question for which events are kept.
	tapePeriod = 10 * time.Second
)

// add keeps an event if somebody wants it. The oldest ones are left out for it.
func (t *tape) add(e event.Event) {
	if t.asked.IsZero() {
		return
	}
	if time.Since(t.asked) > tapePeriod {
		*t = tape{next: t.next}
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		return // JSON cannot have it, so the event log has not
	}
	t.lines, t.bytes, t.next = append(t.lines, line), t.bytes+len(line), t.next+1
	for t.bytes > maxTape {
		t.bytes -= len(t.lines[0])
		t.lines = t.lines[1:]
	}
}

// play returns the events from a number on, and the number of the next event. If the first of them are left out, an
// event Dropped is in their place. From 0 on there are none yet.
func (t *tape) play(from int64, now time.Time) ([]json.RawMessage, int64) {
	t.asked, t.next = now, max(1, t.next)
	first := t.next - int64(len(t.lines))
	switch {
	case from <= 0 || from >= t.next:
		return nil, t.next
	case from >= first:
		return t.lines[from-first:], t.next
	}
	gap, err := json.Marshal(event.Event{Time: now, Index: event.NoPeer, Body: event.Dropped{Events: int(first - from)}})
	if err != nil {
		return t.lines, t.next
	}
	return append([]json.RawMessage{gap}, t.lines...), t.next
}
