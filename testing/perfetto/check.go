package perfetto

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Trace is what a trace shows.
type Trace struct {
	Tracks []*Track // in the order of their descriptors
	Begin  uint64   // time of the first packet
}

// Track is a track. The name of the track of a process is that of the process.
type Track struct {
	ID, Parent uint64 // ID of the parent, or of the track of the process for a thread
	Kind       string // root, process, thread, counter or slices
	Name       string
	Label      string // of a process
	PID        uint64 // of a process or thread
	Rank       int64
	Unit       string
	Events     []*Event // in order; a slice at its begin
	open       []*Event
	at         uint64
}

// Event is a slice, an instant or a value of a counter.
type Event struct {
	Kind           string // slice, instant or count
	Category, Name string
	Begin, End     uint64 // nanoseconds on the clock of the trace
	Depth          int    // number of slices around it
	Correlation    uint64
	Value          float64
	Flows          []uint64 // of a slice
	Args           []Arg
}

// Arg is an argument of an event: Value is a string, an int64 or a float64.
type Arg struct {
	Name  string
	Value any
}

// reader reads a trace.
type reader struct {
	trace    *Trace
	tracks   map[uint64]*Track
	pids     map[uint64]uint64 // track of a process by its ID
	tids     map[uint64]bool
	interned [4]map[uint64]string
	packets  int
}

// Read reads a trace, and returns the first violation of a rule of the format:
//
//   - Packets are on one sequence. Only the first one clears the incremental state, and all others need it.
//   - A descriptor comes before what refers to its track, once. IDs of tracks, processes and threads are unique.
//   - An ID of a text is defined before its use, or in the same packet, and once.
//   - The times of a track do not decrease in the order of the packets. Each slice has an end, and slices are nested.
//   - Values are on tracks of counters, and only there. Flows are those of slices.
//   - Texts are UTF-8, and fields have their types.
func Read(b []byte) (*Trace, error) {
	r := reader{trace: &Trace{}, tracks: make(map[uint64]*Track), pids: make(map[uint64]uint64), tids: make(map[uint64]bool)}
	for i := range r.interned {
		r.interned[i] = make(map[uint64]string)
	}
	for len(b) > 0 {
		n, is, size := protowire.ConsumeTag(b)
		if size < 0 || n != 1 || is != isBytes {
			return nil, fmt.Errorf("packet %d: no packet begins here", r.packets)
		}
		packet, length := protowire.ConsumeBytes(b[size:])
		if length < 0 {
			return nil, fmt.Errorf("packet %d: %w", r.packets, protowire.ParseError(length))
		}
		if err := r.packet(packet); err != nil {
			return nil, fmt.Errorf("packet %d: %w", r.packets, err)
		}
		b = b[size+length:]
		r.packets++
	}
	for _, t := range r.trace.Tracks {
		if len(t.open) > 0 {
			return nil, fmt.Errorf("track %q: slice %q has no end", t.Name, t.open[0].Name)
		}
	}
	if r.packets == 0 {
		return nil, errors.New("no packet")
	}
	return r.trace, nil
}

// packet reads a packet.
func (r *reader) packet(b []byte) error {
	m, err := parse("packet", b, packetFields())
	if err == nil {
		err = m.once("packet")
	}
	if err != nil {
		return err
	}
	first := r.packets == 0
	switch {
	case m.uint(10) != 2:
		return fmt.Errorf("sequence %d", m.uint(10))
	case first && (m.uint(13) != 1 || m.uint(87) != 1 || !m.has(6)):
		return errors.New("the first packet has to clear the state, to say that it is the first, and to relate the clocks")
	case !first && (m.uint(13) != 2 || m.has(87) || m.has(6)):
		return fmt.Errorf("flags %d of a packet that needs the state", m.uint(13))
	case !m.has(8) || m.uint(8) == 0 || m.uint(8) > 1<<62:
		return fmt.Errorf("time %d", m.uint(8))
	case !first && m.has(11) == m.has(60):
		return errors.New("want an event or a descriptor")
	}
	if first {
		r.trace.Begin = m.uint(8)
		return r.clocks(m.body(6), m.uint(8))
	}
	if err := r.texts(m.body(12)); err != nil {
		return err
	}
	if m.has(60) {
		return r.descriptor(m.body(60), m.uint(8))
	}
	return r.event(m.body(11), m.uint(8))
}

// clocks checks that the clock of the trace shows the time since 1970.
func (r *reader) clocks(b []byte, at uint64) error {
	m, err := parse("clocks", b, fields{1: isBytes})
	if err != nil {
		return err
	}
	ids := make(map[uint64]bool)
	for _, v := range m.fields[1] {
		c, err := parse("clock", v.bytes, fields{1: isNumber, 2: isNumber})
		if err != nil {
			return err
		}
		if c.uint(2) != at {
			return fmt.Errorf("clock %d shows %d", c.uint(1), c.uint(2))
		}
		ids[c.uint(1)] = true
	}
	if !ids[1] || !ids[6] || len(ids) != 2 {
		return fmt.Errorf("clocks %v, want REALTIME and BOOTTIME", ids)
	}
	return nil
}

// texts reads the definitions of texts.
func (r *reader) texts(b []byte) error {
	m, err := parse("interned data", b, fields{1: isBytes, 2: isBytes, 3: isBytes})
	if err != nil {
		return err
	}
	for n, list := range m.fields {
		for _, v := range list {
			e, err := parse("entry", v.bytes, fields{1: isNumber, 2: isBytes})
			if err != nil {
				return err
			}
			name, err := e.text(2)
			id := e.uint(1)
			if _, twice := r.interned[n][id]; err != nil || twice || id == 0 || name == "" {
				return errors.Join(fmt.Errorf("text %d of kind %d: %q, defined before: %v", id, n, name, twice), err)
			}
			r.interned[n][id] = name
		}
	}
	return nil
}

// event reads an event of a track.
func (r *reader) event(b []byte, at uint64) error {
	m, err := parse("event", b, eventFields())
	if err == nil {
		err = m.once("event", 4, 47)
	}
	if err != nil {
		return err
	}
	t := r.tracks[m.uint(11)]
	kind := m.uint(9)
	switch {
	case t == nil:
		return fmt.Errorf("track %d has no descriptor", m.uint(11))
	case kind < 1 || kind > 4:
		return fmt.Errorf("type %d", kind)
	case (kind == 4) != (t.Kind == "counter") || (kind == 4) != m.has(44) || t.Kind == "root":
		return fmt.Errorf("type %d on track %q, which is a %s", kind, t.Name, t.Kind)
	case at < t.at:
		return fmt.Errorf("track %q: the time goes back by %d ns", t.Name, t.at-at)
	case kind == 1 && t.Kind == "process" || kind == 3 && t.Kind != "process":
		return fmt.Errorf("type %d on track %q, which is a %s", kind, t.Name, t.Kind)
	}
	t.at = at
	e := &Event{Begin: at, End: at, Depth: len(t.open), Correlation: m.uint(52), Value: m.double(44)}
	if e.Args, err = r.args(m); err != nil {
		return err
	}
	for _, v := range m.fields[47] {
		e.Flows = append(e.Flows, v.number)
	}
	if len(e.Flows) > 0 && kind > 2 || slices.Contains(e.Flows, 0) {
		return fmt.Errorf("track %q: flows %x, but 0 is none, and only slices have some", t.Name, e.Flows)
	}
	if kind == 2 {
		return t.end(at, e, m)
	}
	e.Kind = [5]string{1: "slice", 3: "instant", 4: "count"}[kind]
	if err := r.named(e, m); err != nil {
		return err
	}
	t.Events = append(t.Events, e)
	if kind == 1 {
		t.open = append(t.open, e)
	}
	return nil
}

// end ends the innermost slice.
func (t *Track) end(at uint64, e *Event, m message) error {
	if len(t.open) == 0 || m.has(3) || m.has(10) || m.has(23) {
		return fmt.Errorf("track %q: this end is of no slice, or has a name", t.Name)
	}
	last := t.open[len(t.open)-1]
	last.End, last.Args, last.Flows = at, append(last.Args, e.Args...), append(last.Flows, e.Flows...)
	t.open = t.open[:len(t.open)-1]
	return nil
}

// named reads the category and the name of an event. A value of a counter has none.
func (r *reader) named(e *Event, m message) (err error) {
	if e.Kind == "count" {
		if m.has(3) || m.has(10) || m.has(23) || m.has(4) {
			return errors.New("a value of a counter has a name, a category or arguments")
		}
		return nil
	}
	e.Category = r.interned[1][m.uint(3)]
	if e.Name, err = m.text(23); err != nil {
		return err
	}
	if m.has(10) {
		e.Name = r.interned[2][m.uint(10)]
	}
	if e.Name == "" || e.Category == "" || m.has(10) == m.has(23) {
		return fmt.Errorf("name %d %q or category %d is not defined", m.uint(10), e.Name, m.uint(3))
	}
	return nil
}

// args reads the arguments of an event.
func (r *reader) args(m message) (list []Arg, err error) {
	for _, v := range m.fields[4] {
		a, err := parse("argument", v.bytes, argFields())
		if err == nil {
			err = a.once("argument")
		}
		if err != nil {
			return nil, err
		}
		arg := Arg{Name: r.interned[3][a.uint(1)]}
		switch {
		case arg.Name == "" || len(a.order) != 2:
			return nil, fmt.Errorf("argument %d has no name, or no value", a.uint(1))
		case a.has(4):
			arg.Value = int64(a.uint(4))
		case a.has(5):
			arg.Value = a.double(5)
		default:
			if arg.Value, err = a.text(6); err != nil {
				return nil, err
			}
		}
		list = append(list, arg)
	}
	return list, nil
}
