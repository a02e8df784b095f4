package timeline

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
)

const (
	// window is how far lines may be out of the order of their times.
	window = 2 * time.Second
	// maxHeld and maxHeldBytes bound the lines that are held to put them in order.
	maxHeld      = 1 << 15
	maxHeldBytes = 1 << 26
	// maxLineBytes bounds a line.
	maxLineBytes = 1 << 20
	// batchLines is the number of lines that are decoded at a time.
	batchLines = 128
)

// Lines tells what Read has found in logs.
type Lines struct {
	Events    int64 `json:"events"`              // lines that were added to the Job
	Repeated  int64 `json:"repeated,omitempty"`  // lines that were there already, as in a log that is given twice
	Malformed int64 `json:"malformed,omitempty"` // lines that are no events
	Long      int64 `json:"long,omitempty"`      // lines of more than 1 MiB
	Late      int64 `json:"late,omitempty"`      // lines more than two seconds out of order
	Cut       int   `json:"cut,omitempty"`       // logs whose last line is cut off
}

// Read adds the events of logs to a Job, in the order of their times. Each log is a file of an elrun, plain or
// compressed by gzip, and is read to its end. Lines may be up to two seconds out of order, and a line that two
// logs have counts once. Read skips what it does not understand, and counts it. The error is that of a log
// that could not be read; the events before it are in the Job.
func Read(j *Job, logs ...io.Reader) (Lines, error) {
	return read(j.entry, batchLines, nil, logs)
}

// Events is Read for another reader than a Job: it calls add with each event. If kinds are given, it calls add only with
// events of these kinds, and skips all other lines without a look at them.
func Events(add func(event.Event), kinds []string, logs ...io.Reader) (Lines, error) {
	marks := make([][]byte, len(kinds))
	for i, kind := range kinds {
		marks[i] = fmt.Appendf(nil, `"event":%q`, kind)
	}
	return read(func(e *entry) {
		if e.isStep {
			e.event.Body = e.step
		}
		if len(kinds) == 0 || slices.Contains(kinds, e.event.Body.Name()) {
			add(e.event)
		}
	}, batchLines, marks, logs)
}

// read reads logs in batches of n lines, and calls add with each line, of which each has one of the marks if there are any.
func read(add func(*entry), n int, marks [][]byte, logs []io.Reader) (Lines, error) {
	m := merger{to: add}
	for i, r := range logs {
		l := &logReader{number: i, size: n, marks: marks, batches: make(chan batch, 1)}
		m.logs = append(m.logs, l)
		go l.run(r)
	}
	for len(m.logs) > 0 {
		m.next()
	}
	return m.found, errors.Join(m.errs...)
}

// batch is a piece of a log.
type batch struct {
	entries []entry
	found   Lines // without Events
	err     error
}

// logReader reads and decodes one log in a goroutine of its own, which ends with the log.
type logReader struct {
	number  int
	size    int        // lines of a batch
	marks   [][]byte   // of which a line has one, unless there are none
	batches chan batch // closed after the last batch
	horizon instant    // latest time of the batches so far; owned by the merger
}

// run sends the lines of a log.
func (l *logReader) run(r io.Reader) {
	defer close(l.batches)
	in, err := plain(r)
	d := decoder{}
	b := batch{err: err}
	for b.err == nil {
		line, err := in.line()
		switch {
		case err != nil:
			b.err = err
		case line == nil:
			b.found.Long++
		case l.wants(line):
			d.add(&b, line)
		}
		if b.err == nil && len(b.entries) == l.size {
			l.batches <- b
			b = batch{}
		}
	}
	// What follows the last line end is a line that was being written.
	if len(in.rest) > 0 && l.wants(in.rest) && d.add(&b, in.rest) != nil {
		b.found.Malformed--
		b.found.Cut++
	} else if errors.Is(b.err, io.ErrUnexpectedEOF) {
		b.found.Cut++
	}
	if errors.Is(b.err, io.EOF) || errors.Is(b.err, io.ErrUnexpectedEOF) {
		b.err = nil
	}
	if b.err != nil {
		b.err = fmt.Errorf("timeline: read log %d: %w", l.number+1, b.err)
	}
	l.batches <- b
}

// wants reports whether a line has a mark.
func (l *logReader) wants(line []byte) bool {
	return len(l.marks) == 0 || slices.ContainsFunc(l.marks, func(mark []byte) bool { return bytes.Contains(line, mark) })
}

// plain returns the lines of a log, which may be compressed.
func plain(r io.Reader) (*lineReader, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	if magic, err := in.Peek(2); err != nil || !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return &lineReader{in: in}, nil
	}
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return &lineReader{}, err
	}
	return &lineReader{in: bufio.NewReaderSize(unzipped, 1<<16)}, nil
}

// lineReader returns the lines of a log.
type lineReader struct {
	in   *bufio.Reader
	long []byte // memory for lines that are longer than the buffer
	rest []byte // after an error: what follows the last line end
}

// line returns the next line, which is valid until the next call; nil if it is too long.
func (l *lineReader) line() ([]byte, error) {
	part, err := l.in.ReadSlice('\n')
	if err == nil {
		return part, nil
	}
	l.long = append(l.long[:0], part...)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = l.in.ReadSlice('\n')
		if len(l.long) <= maxLineBytes {
			l.long = append(l.long, part...)
		}
	}
	switch {
	case len(l.long) > maxLineBytes && err == nil:
		return nil, nil
	case err == nil:
		return l.long, nil
	case len(l.long) <= maxLineBytes:
		l.rest = l.long
	}
	return nil, err
}

// add decodes a line into a batch, and returns an error if it is malformed. Empty lines are skipped.
func (d *decoder) add(b *batch, line []byte) error {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) == 0 {
		return nil
	}
	if b.entries == nil {
		b.entries = make([]entry, 0, batchLines)
	}
	n := len(b.entries)
	b.entries = append(b.entries, entry{})
	e := &b.entries[n]
	if err := d.decode(line, e); err != nil {
		b.entries = b.entries[:n]
		b.found.Malformed++
		return err
	}
	e.at, e.rank = instantOf(e.event.Time), rankOf(e.event.Body)
	e.sum = uint64(len(line))<<32 | uint64(crc32.Checksum(line, crc32.MakeTable(crc32.Castagnoli)))
	return nil
}

// rankOf returns the place of an event among those of one instant: names and views come before what depends
// on them, and ends come last.
func rankOf(b event.Body) int {
	switch b.(type) {
	case event.Job:
		return 0
	case event.Member:
		return 1
	case event.View:
		return 2
	case event.Done:
		return 4
	case event.Exit:
		return 5
	}
	return 3
}

// merger puts the lines of several logs in order.
type merger struct {
	to    func(*entry) // gets the lines in order
	logs  []*logReader // that have not ended
	held  []*entry     // a heap, the earliest first
	bytes int          // of the lines in held
	last  *entry       // that was added
	found Lines
	errs  []error
}

// next takes the next batch of the log that is furthest behind, and passes on what no later line can
// precede.
func (m *merger) next() {
	behind := 0
	for i, l := range m.logs {
		if l.horizon < m.logs[behind].horizon {
			behind = i
		}
	}
	l := m.logs[behind]
	b, ok := <-l.batches
	if !ok {
		m.logs = append(m.logs[:behind], m.logs[behind+1:]...)
	}
	m.found.Malformed += b.found.Malformed
	m.found.Long += b.found.Long
	m.found.Cut += b.found.Cut
	if b.err != nil {
		m.errs = append(m.errs, b.err)
	}
	for i := range b.entries {
		e := &b.entries[i]
		e.at = cmp.Or(e.at, l.horizon) // a line without a time comes after the lines before it
		l.horizon = max(l.horizon, e.at)
		m.push(e)
	}
	for len(m.held) > 0 && (m.due(m.held[0].at) || len(m.held) > maxHeld || m.bytes > maxHeldBytes) {
		m.add(m.pop())
	}
}

// due reports whether all logs are more than the window past an instant.
func (m *merger) due(at instant) bool {
	for _, l := range m.logs {
		if at.plus(window) > l.horizon {
			return false
		}
	}
	return true
}

// add passes on a line, unless it is the same as the one before.
func (m *merger) add(e *entry) {
	switch {
	case m.last == nil:
	case e.at == m.last.at && e.sum == m.last.sum:
		m.found.Repeated++
		return
	case e.before(m.last):
		m.found.Late++
	}
	m.last = e
	m.found.Events++
	m.to(e)
}

// before orders lines by their times. Lines of one time have an order that does not depend on their place.
func (e *entry) before(o *entry) bool {
	return cmp.Or(cmp.Compare(e.at, o.at), cmp.Compare(e.rank, o.rank), cmp.Compare(e.sum, o.sum)) < 0
}

// push adds a line to the heap.
func (m *merger) push(e *entry) {
	i := len(m.held)
	m.held = append(m.held, e)
	m.bytes += int(e.sum >> 32)
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(m.held[parent]) {
			break
		}
		m.held[i] = m.held[parent]
		i = parent
	}
	m.held[i] = e
}

// pop removes the earliest line from the heap.
func (m *merger) pop() *entry {
	first, n := m.held[0], len(m.held)-1
	m.bytes -= int(first.sum >> 32)
	e := m.held[n]
	m.held[n] = nil
	m.held = m.held[:n]
	for i := 0; n > 0; {
		child := 2*i + 1
		if child+1 < n && m.held[child+1].before(m.held[child]) {
			child++
		}
		if child >= n || !m.held[child].before(e) {
			m.held[i] = e
			break
		}
		m.held[i] = m.held[child]
		i = child
	}
	return first
}
