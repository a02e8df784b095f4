package say

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/wire"
)

// printer writes lines to one file, or to several files that share a screen, from one goroutine.
//
//	send: wait in turn for room --> queue --> run --> streams
//
// Senders wait while the printer is slow (backpressure). This bounds memory and loses no line, and
// because senders take turns, a peer that prints without end does not starve other peers. Senders
// do not wait for a stuck printer, such as a terminal after Ctrl-S: once a write has taken
// stuckPeriod, lines for which there is no room are dropped and counted.
//
// No lock is held during a write, because the launcher must still handle signals.
type printer struct {
	failed     func(t wire.Target, err error, final bool) // called at the first failure of each stream, and at the final one
	abandoned  <-chan struct{}                            // closed when senders shall stop waiting
	sendTurn   chan struct{}                              // capacity 1: held by the sender that waits for room
	spaceFreed chan struct{}                              // capacity 1: a signal that the queue is shorter
	wake       chan struct{}                              // capacity 1: a signal that there is work
	ended      chan struct{}                              // closed when run has returned
	work       sync.WaitGroup

	// mu guards the fields up to closed.
	mu             sync.Mutex
	queue          []queuedBlock // oldest first
	bytes          int           // size of the text in queue
	begun          time.Time     // start of the present write; zero without one
	notes          int           // entries of queue that were added without waiting for room
	wantedProgress string        // the requested progress line
	closed         bool

	// Only run uses the following fields.

	streams       [wire.Targets]*LineWriter // nil for streams of other printers
	columns       func() int                // present width of the terminal with the progress line; 0 if unknown
	states        [wire.Targets]streamState
	shownProgress string // the progress line on the screen
}

// queuedBlock is a block in the queue, or a gap.
type queuedBlock struct {
	Block
	// always adds the block even if the queue is full.
	always bool
	lost   int          // number of lines dropped here; text is empty
	done   chan<- error // receives the result of the write; may be nil
}

// streamState is the state of the writes to a stream.
type streamState struct {
	reported bool // a line has reported that writes fail
	gone     bool // nobody reads the stream any more
	lost     int  // lines not written since the failure
	reason   error
}

const (
	maxQueue    = 4 << 20 // bytes of text that may wait
	maxNotes    = 256     // entries that may wait besides this text
	stuckPeriod = 2 * time.Second
	// pieceSize is the size of one write in bytes, unless a line is longer. Writes of this size to
	// a pipe are atomic, and with short writes a slow reader does not look stuck.
	pieceSize = 4 << 10
)

// newPrinter returns a printer without streams. The caller sets the streams and starts run.
func newPrinter(failed func(wire.Target, error, bool), abandoned <-chan struct{}) *printer {
	return &printer{failed: failed, abandoned: abandoned, columns: func() int { return 0 }, sendTurn: make(chan struct{}, 1), spaceFreed: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// send adds a block when there is room. It drops the block if the printer is stuck or abandoned is
// closed.
func (p *printer) send(b Block) {
	select {
	// One sender at a time waits for room. The other senders wait here for their turn, so that a
	// peer that prints without end does not starve them.
	case p.sendTurn <- struct{}{}:
		defer func() { <-p.sendTurn }()
	case <-p.abandoned:
		p.drop(b)
		return
	}
	for !p.add(queuedBlock{Block: b}) {
		if p.stuck() {
			p.drop(b)
			return
		}
		timer := time.NewTimer(stuckPeriod)
		select {
		case <-p.spaceFreed:
		case <-timer.C:
		case <-p.abandoned:
		}
		timer.Stop()
	}
}

// add queues e and reports whether there was room.
func (p *printer) add(e queuedBlock) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	// Lines of the launcher do not wait for room, so their number is bounded. The job's result has
	// a done channel and is never dropped.
	case e.always && p.notes >= maxNotes && e.done == nil:
		p.dropLocked(e.Block)
		return true
	case e.always:
		p.notes++
	// A block longer than the whole queue gets in when the queue is empty.
	case p.bytes+len(e.Text) > maxQueue && p.bytes > 0:
		return false
	}
	p.bytes += len(e.Text)
	p.queue = append(p.queue, e)
	notify(p.wake)
	return true
}

// stuck reports whether the present write has taken stuckPeriod, or abandoned is closed, so that
// senders must not wait.
func (p *printer) stuck() bool {
	select {
	case <-p.abandoned:
		return true
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.begun.IsZero() && time.Since(p.begun) >= stuckPeriod
}

// drop adds the lines of a block to the gap at the end of the queue, which counts the lines that
// are not printed.
func (p *printer) drop(b Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(b)
}

// dropLocked is drop with mu held. Each target has its own gap.
func (p *printer) dropLocked(b Block) {
	lines := bytes.Count(b.Text, []byte("\n"))
	for i := len(p.queue) - 1; i >= 0 && p.queue[i].lost > 0; i-- {
		if p.queue[i].To == b.To {
			p.queue[i].lost += lines
			return
		}
	}
	p.queue = append(p.queue, queuedBlock{Block: Block{To: b.To}, lost: lines})
	notify(p.wake)
}

// show sets the progress line.
func (p *printer) show(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wantedProgress = line
	notify(p.wake)
}

// close makes run end when the queue is empty.
func (p *printer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.wantedProgress = true, ""
	notify(p.wake)
}

// notify sends a signal on a channel with capacity 1, unless one is pending.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run writes until close has been called and the queue is empty.
func (p *printer) run() {
	defer close(p.ended)
	for {
		e, bar, ok, end := p.next()
		switch {
		case ok:
			p.printEntry(e)
		case end:
			p.drawProgress("")
			return
		// Blocks come first: the progress line is drawn only while the queue is empty.
		case bar != p.shownProgress:
			p.drawProgress(bar)
		default:
			<-p.wake
		}
	}
}

// next removes the first entry from the queue. If the queue is empty, it returns the requested
// progress line, and whether run has to end.
func (p *printer) next() (e queuedBlock, bar string, ok, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return queuedBlock{}, p.wantedProgress, false, p.closed
	}
	e = p.queue[0]
	p.queue[0] = queuedBlock{} // releases the memory of the text
	p.queue = p.queue[1:]
	p.bytes -= len(e.Text)
	if e.always {
		p.notes--
	}
	notify(p.spaceFreed)
	return e, "", true, false
}

// printEntry writes an entry.
func (p *printer) printEntry(e queuedBlock) {
	// The progress line must be erased first, or the block would be written behind it.
	if p.streams[wire.ToStderr] != nil {
		p.drawProgress("")
	}
	var err error
	if e.lost > 0 {
		err = p.writeBlock(gapLine(e.lost, e.To))
	} else {
		err = p.writeBlock(e.Block)
	}
	if e.done != nil {
		e.done <- err
	}
}

// drawProgress replaces the progress line on the screen; "" removes it. The line is cut to the
// present width of the terminal: of a line in two rows, the next one would replace the second only.
func (p *printer) drawProgress(s string) {
	if s == p.shownProgress || p.streams[wire.ToStderr] == nil {
		return
	}
	p.shownProgress = s
	p.time(time.Now())
	defer p.time(time.Time{})
	if most := p.columns(); most > 0 {
		s = printable.Cut(s, most-1) // a terminal may begin a row after its last column
	}
	_, _ = p.streams[wire.ToStderr].W.Write([]byte("\r\x1b[K" + s)) // an error shows at the next line
}

// writeBlock writes the lines of a block in pieces. Lines that cannot be written are counted.
func (p *printer) writeBlock(b Block) error {
	s := &p.states[b.To]
	if s.gone {
		return s.reason
	}
	if s.lost > 0 {
		// The stream works again, for example after space was freed on a full disk: print the line
		// about the gap first.
		if p.write(gapLine(s.lost, b.To)) == nil {
			s.lost = 0
		}
	}
	for rest := b.Text; len(rest) > 0; {
		n := pieceLen(rest)
		if err := p.write(Block{rest[:n], b.To}); err != nil {
			s.lost += bytes.Count(rest, []byte("\n"))
			p.fail(b.To, err)
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// write writes a piece, and records the time for stuck.
func (p *printer) write(b Block) error {
	p.time(time.Now())
	defer p.time(time.Time{})
	_, err := p.streams[b.To].Write(b.Text)
	return err
}

// time sets the start of the present write, zero after it.
func (p *printer) time(begun time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = begun
}

// fail records a failed write. A full disk may have room later, but a broken pipe (EPIPE) is
// final.
func (p *printer) fail(t wire.Target, err error) {
	s := &p.states[t]
	s.gone, s.reason = errors.Is(err, syscall.EPIPE), err
	if !s.reported || s.gone {
		s.reported = true
		p.failed(t, err, s.gone)
	}
}

// pieceLen returns the length of the whole lines at the start of b that go into one write.
func pieceLen(b []byte) int {
	if len(b) <= pieceSize {
		return len(b)
	}
	// Pieces end at line ends, so that a failed write cuts at most one line.
	if i := bytes.LastIndexByte(b[:pieceSize], '\n'); i >= 0 {
		return i + 1
	}
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	return len(b)
}

// gapLine returns the line in place of dropped lines.
func gapLine(lost int, to wire.Target) Block {
	if to == wire.ToEvents {
		line, err := json.Marshal(event.Event{Time: time.Now(), Body: event.Dropped{Events: lost}})
		if err != nil {
			return Block{To: to}
		}
		return Block{append(line, '\n'), to}
	}
	return Block{fmt.Appendf(nil, "elrun: %s dropped: %v did not take them\n", CountLines(lost), to), to}
}

// CountLines formats a number of lines, with commas between thousands.
func CountLines(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if n == 1 {
		return "1 line"
	}
	return s + " lines"
}
