package perfetto

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// descriptor reads the descriptor of a track.
func (r *reader) descriptor(b []byte, at uint64) error {
	m, err := parse("descriptor", b, trackFields())
	if err == nil {
		err = m.once("descriptor")
	}
	if err != nil {
		return err
	}
	t := &Track{ID: m.uint(1), Parent: m.uint(5), Kind: "slices", Rank: int64(m.uint(12)), at: at}
	if t.Name, err = m.text(2); err != nil {
		return err
	}
	switch {
	case t.ID == 0 && m.uint(19) == 1 && m.uint(20) == 1 && len(m.order) == 3:
		t.Kind, t.Name = "root", "root"
	case m.has(3):
		err = r.process(t, m.body(3))
	case m.has(4):
		err = r.thread(t, m.body(4))
	case m.has(8):
		err = t.counter(m.body(8))
	}
	switch {
	case err != nil:
		return err
	case r.tracks[t.ID] != nil:
		return fmt.Errorf("track %d has two descriptors", t.ID)
	case t.Name == "" || t.Kind != "root" && t.ID == 0:
		return fmt.Errorf("track %d: name %q", t.ID, t.Name)
	case (t.Kind == "counter" || t.Kind == "slices") && (r.tracks[t.Parent] == nil || r.tracks[t.Parent].Kind != "process"):
		return fmt.Errorf("track %d: its parent %d is no process", t.ID, t.Parent)
	}
	r.tracks[t.ID] = t
	r.trace.Tracks = append(r.trace.Tracks, t)
	return nil
}

// process reads the descriptor of a process.
func (r *reader) process(t *Track, b []byte) (err error) {
	m, err := parse("process", b, fields{1: isNumber, 6: isBytes, 8: isBytes})
	if err == nil {
		err = m.once("process")
	}
	if err != nil {
		return err
	}
	t.Kind, t.PID = "process", m.uint(1)
	if _, twice := r.pids[t.PID]; twice || t.PID == 0 || t.PID >= 1<<31 || t.Parent != 0 {
		return fmt.Errorf("process %d is invalid, or known already", t.PID)
	}
	r.pids[t.PID] = t.ID
	name, err := m.text(6)
	label, wrong := m.text(8)
	t.Name, t.Label = name, label
	return errors.Join(err, wrong)
}

// thread reads the descriptor of a thread.
func (r *reader) thread(t *Track, b []byte) (err error) {
	m, err := parse("thread", b, fields{1: isNumber, 2: isNumber, 5: isBytes})
	if err == nil {
		err = m.once("thread")
	}
	if err != nil {
		return err
	}
	of, known := r.pids[m.uint(1)]
	if tid := m.uint(2); !known || tid == 0 || r.tids[tid] || t.Parent != 0 {
		return fmt.Errorf("thread %d of process %d is invalid, or known already", tid, m.uint(1))
	}
	r.tids[m.uint(2)] = true
	t.Kind, t.Parent, t.PID = "thread", of, m.uint(1)
	t.Name, err = m.text(5)
	return err
}

// counter reads the descriptor of a counter.
func (t *Track) counter(b []byte) error {
	m, err := parse("counter", b, fields{3: isNumber, 6: isBytes})
	if err != nil {
		return err
	}
	t.Kind = "counter"
	if t.Unit, err = m.text(6); t.Unit == "" && m.uint(3) == 3 {
		t.Unit = "bytes"
	}
	return err
}

// Of returns the tracks of a name in the process of a name, or in all processes if that is "".
func (t *Trace) Of(process, name string) (list []*Track) {
	names := make(map[uint64]string)
	for _, k := range t.Tracks {
		if k.Kind == "process" {
			names[k.ID] = k.Name
		}
		if of, child := names[k.Parent]; child && k.Name == name && (process == "" || of == process) {
			list = append(list, k)
		}
	}
	return list
}

// Text returns the trace as text: a line for each track, and below it one for each event, with milliseconds since the
// begin of the trace.
func (t *Trace) Text() string {
	var b strings.Builder
	for _, k := range t.Tracks {
		fmt.Fprintf(&b, "%s %d %q", k.Kind, k.ID, k.Name)
		if k.Parent != 0 {
			fmt.Fprintf(&b, " of %d", k.Parent)
		}
		for _, x := range []struct {
			name  string
			value any
			is    bool
		}{{"pid", k.PID, k.PID != 0}, {"rank", k.Rank, k.Rank != 0}, {"unit", k.Unit, k.Unit != ""}, {"label", k.Label, k.Label != ""}} {
			if x.is {
				fmt.Fprintf(&b, " %s %v", x.name, x.value)
			}
		}
		b.WriteByte('\n')
		for _, e := range k.Events {
			b.WriteString(e.line(t.Begin))
		}
	}
	return b.String()
}

// line returns the line of an event.
func (e *Event) line(begin uint64) string {
	ms := func(at uint64) string {
		return fmt.Sprintf("%.3f", time.Duration(at-begin).Seconds()*1000)
	}
	line := strings.Repeat("  ", e.Depth+1) + ms(e.Begin)
	switch e.Kind {
	case "count":
		return fmt.Sprintf("%s %g\n", line, e.Value)
	case "slice":
		line += "-" + ms(e.End)
	}
	line += fmt.Sprintf(" %s (%s)", e.Name, e.Category)
	if e.Correlation != 0 {
		line += fmt.Sprintf(" [%d]", e.Correlation)
	}
	for _, a := range e.Args {
		line += fmt.Sprintf(" %s=%v", a.Name, a.Value)
	}
	return line + "\n"
}
