package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// written closes an outbox and returns the lines that its writer writes.
func written(o *Outbox) (lines []string) {
	o.Close()
	o.Run(func(line []byte) error {
		lines = append(lines, string(line))
		return nil
	})
	return lines
}

// Messages of a class are kept up to its bound, and a gap counts the dropped messages at their
// place in the queue. Results are always kept.
func TestOutboxBound(t *testing.T) {
	o := NewOutbox(func(lost int) []byte { return fmt.Append(nil, "lost ", lost) })
	step := []byte(strings.Repeat("s", 1<<10))
	bound := Telemetry.bound() / len(step)
	for range bound + 5 {
		o.Add(step, Telemetry)
	}
	o.Add([]byte("done"), Result)
	for range 2 {
		o.Add(step, Telemetry) // the class drops until half of its bytes are written
	}
	lines := written(o)
	kept := slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return s != string(step) })
	rest := slices.DeleteFunc(lines, func(s string) bool { return s == string(step) })
	if len(kept) != bound || !slices.Equal(rest, []string{"lost 5", "done", "lost 2"}) {
		t.Errorf("%d steps, want %d; and %q", len(kept), bound, rest)
	}
}

// Add returns a channel until the reader is late. Once the queue has been empty, Add returns a
// channel again.
func TestOutboxLateReader(t *testing.T) {
	o := NewOutbox(nil)
	first, second := o.Add([]byte("1"), History), o.Add([]byte("2"), History)
	if first == nil || second == nil {
		t.Fatal("nothing to wait for, though the reader keeps up")
	}
	o.ReaderLate()
	if o.Add([]byte("3"), History) != nil {
		t.Error("waits for a reader that is late")
	}
	for range 3 {
		m, _, _ := o.first()
		o.written(m)
	}
	if o.Add([]byte("4"), History) == nil {
		t.Error("does not wait for a reader that has taken all")
	}
	if got := written(o); !slices.Equal(got, []string{"4"}) {
		t.Errorf("got %q", got)
	}
}
