package run

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/event"
)

// noteEvent returns an event with a text.
func noteEvent(text string) event.Event {
	return event.Event{Time: time.Now(), Index: event.NoPeer, Body: event.Note{Text: text}}
}

// played returns the texts of the notes of an answer, and for a gap the number of events in it as "-".
func played(t *testing.T, lines []json.RawMessage) (texts string) {
	t.Helper()
	for _, line := range lines {
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		switch b := e.Body.(type) {
		case event.Note:
			texts += b.Text[:1]
		case event.Dropped:
			texts += strings.Repeat("-", b.Events)
		}
	}
	return texts
}

// A tape has the events from the first question on, each once for each reader, until nobody asks any more. What does not fit is
// a gap.
func TestTape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tape tape
		tape.add(noteEvent("a"))
		lines, one := tape.play(0, time.Now())
		if len(tape.lines) != 0 || len(lines) != 0 {
			t.Error("events are kept that nobody wants")
		}
		tape.add(noteEvent("b"))
		_, two := tape.play(0, time.Now())
		tape.add(noteEvent("c"))
		lines, one = tape.play(one, time.Now())
		if got := played(t, lines); got != "bc" {
			t.Errorf("the first reader has %q", got)
		}
		lines, two = tape.play(two, time.Now())
		if got := played(t, lines); got != "c" {
			t.Errorf("the second reader has %q", got)
		}
		for _, text := range []string{"d", "e", "f"} {
			tape.add(noteEvent(text + strings.Repeat("x", maxTape/2-1000)))
		}
		lines, one = tape.play(one, time.Now())
		if got := played(t, lines); got != "-ef" {
			t.Errorf("after more than fits the first reader has %q", got)
		}
		<-time.After(tapePeriod + time.Second)
		tape.add(noteEvent("g"))
		if len(tape.lines) != 0 || tape.bytes != 0 {
			t.Error("events are kept that nobody asks for any more")
		}
		lines, _ = tape.play(two, time.Now())
		if got := played(t, lines); got != "---" {
			t.Errorf("after the tape was dropped the second reader has %q", got)
		}
		if lines, _ = tape.play(one, time.Now()); len(lines) != 0 {
			t.Errorf("the first reader has %q, which it knows", played(t, lines))
		}
	})
}
