package say

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/wire"
)

// Console merges the output of all peers. Each file has a printer, which writes blocks of whole
// lines, so that lines never mix:
//
//	peer 0 stdout --block--\
//	peer 0 stderr --block---+--> printer of the screen    --> standard output and error
//	launcher ------- notes -+
//	peer 0 events --block------> printer of the event log --> file
//
// Standard output and standard error share a printer if they are the same file, for example a
// terminal; so does the event log if it is the same file as one of them. Otherwise each has its
// own printer, so that a stuck stream (a pager, a slow disk) does not block the others.
type Console struct {
	printers  [wire.Targets]*printer // by target; nil where there is no event log
	live      bool                   // standard error is a terminal that shows a progress line
	Broken    chan error             // the first write error that means that nobody reads
	Notes     chan event.Event       // the lines of Say, for who keeps events; a line that finds it full is left out
	once      sync.Once              // for Abandon
	abandoned chan struct{}          // closed when senders shall stop waiting
}

// Block is one or more whole lines for one target. A printer writes no other lines between the
// lines of a block.
type Block struct {
	Text []byte
	To   wire.Target
}

// NewConsole starts a console and its printers; Close ends them. events may be nil.
func NewConsole(stdout, stderr, events io.Writer, live bool) *Console {
	c := &Console{live: live, Broken: make(chan error, 1), Notes: make(chan event.Event, notesRoom), abandoned: make(chan struct{})}
	streams := [wire.Targets]io.Writer{stdout, stderr, events}
	for t, w := range streams {
		if w == nil {
			continue
		}
		// A printer is shared with the first earlier stream that is the same file.
		for earlier, other := range streams[:t] {
			if c.printers[t] == nil && oneFile(w, other, wire.Target(t)) {
				c.printers[t] = c.printers[earlier]
			}
		}
		if c.printers[t] == nil {
			c.printers[t] = newPrinter(c.failed, c.abandoned)
		}
		c.printers[t].streams[t] = &LineWriter{W: w}
	}
	if f, ok := stderr.(*os.File); ok {
		c.printers[wire.ToStderr].columns = func() int {
			size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
			if err != nil { // no terminal
				return 0
			}
			return int(size.Col)
		}
	}
	for _, p := range c.distinct() {
		p.work.Go(p.run)
	}
	return c
}

// oneFile reports whether the streams a and b share a printer; of is the target of a. Two files
// share a printer if they are the same file. If one of the streams is no file, as in tests, they
// share a printer unless a is the event log.
func oneFile(a, b io.Writer, of wire.Target) bool {
	fa, okA := a.(*os.File)
	fb, okB := b.(*os.File)
	if !okA || !okB {
		return of != wire.ToEvents
	}
	ia, errA := fa.Stat()
	ib, errB := fb.Stat()
	return errA == nil && errB == nil && os.SameFile(ia, ib)
}

// distinct returns each printer once. The printer of standard error is last, because it prints the
// failures of the others.
func (c *Console) distinct() []*printer {
	var out []*printer
	for _, t := range []wire.Target{wire.ToStdout, wire.ToEvents} {
		if p := c.printers[t]; p != nil && p != c.printers[wire.ToStderr] && (t == wire.ToStdout || p != c.printers[wire.ToStdout]) {
			out = append(out, p)
		}
	}
	return append(out, c.printers[wire.ToStderr])
}

// Send passes a block to its printer. It waits for a slow printer (backpressure), but not for a
// stuck one.
func (c *Console) Send(b Block) {
	if p := c.printers[b.To]; p != nil {
		p.send(b)
	}
}

// Abandon releases waiting senders after one second, even if a printer is stuck. Blocks that are
// not written by then are lost.
func (c *Console) Abandon() {
	// Within the second printers write lines that explain the end, such as the last error of a
	// peer.
	c.once.Do(func() { time.AfterFunc(time.Second, func() { close(c.abandoned) }) })
}

// Say prints a line of the launcher on standard error, and adds it to the event log and to Notes. It never
// waits. The line may contain text of peers and strangers: control characters are replaced, and a long line
// is cut, on a terminal to LineRoom bytes and in a file to fileRoom bytes.
func (c *Console) Say(line string) {
	c.print(line)
	e := event.Event{Time: time.Now(), Index: event.NoPeer, Body: event.Note{Text: printable.Line(wire.Clip(line, fileRoom))}}
	c.Emit(e)
	select {
	case c.Notes <- e:
	default:
	}
}

// notesRoom is the number of lines that wait in Notes. A start or an end of many peers prints some hundreds.
const notesRoom = 1000

// print is Say without the event log, for lines about the event log, and for progress lines.
func (c *Console) print(line string) {
	room := fileRoom
	if c.live {
		room = LineRoom
	}
	c.sayWhole(wire.Clip(line, room))
}

// Emit implements event.Sink: the event goes to the event log, if there is one. It never waits.
func (c *Console) Emit(e event.Event) {
	p := c.printers[wire.ToEvents]
	if p == nil {
		return
	}
	if line, err := json.Marshal(e); err == nil {
		p.add(queuedBlock{Block: Block{append(line, '\n'), wire.ToEvents}, always: true})
	}
}

// fileRoom is the maximum length of a line of the launcher that does not go to a terminal.
const fileRoom = 1000

// sayWhole is say without the limit of length, for lines that people need in full, such as
// tickets.
func (c *Console) sayWhole(line string) {
	c.printers[wire.ToStderr].add(queuedBlock{Block: note(line), always: true})
}

// linePrefix is the prefix of the launcher's own lines.
const linePrefix = "elrun: "

// note returns a line of the launcher as a block.
func note(s string) Block { return Block{[]byte(linePrefix + printable.Line(s) + "\n"), wire.ToStderr} }

// progress shows s as the progress line of a terminal, where "" removes it. On other outputs it
// prints s as a note.
func (c *Console) progress(s string) {
	if !c.live {
		c.print(s)
		return
	}
	c.printers[wire.ToStderr].show(printable.Line(s))
}

// columns returns the width of the terminal with the progress line; 0 if it is unknown.
func (c *Console) columns() int { return c.printers[wire.ToStderr].columns() }

// failed reports a failure of a stream to people, and to the launcher if nobody reads the stream
// any more.
func (c *Console) failed(t wire.Target, err error, final bool) {
	say := c.Say
	if t == wire.ToEvents {
		say = c.print
	}
	switch {
	case !final:
		say(fmt.Sprintf("%v: %v; lines that cannot be written are dropped", t, Cause(err)))
	case t == wire.ToEvents: // the job is more important than its event log
		say(fmt.Sprintf("%v: %v; no more events are logged", t, Cause(err)))
	default:
		say(fmt.Sprintf("%v: %v", t, Cause(err)))
		select {
		case c.Broken <- err:
		default:
		}
	}
}

// Cause returns the cause of a file's error without the file name, for messages that name the file.
func Cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Close writes the line last, unless it is "", to standard output after everything else, and ends
// the console. No sender may be left. It waits for stuck streams until ctx ends; the goroutine of a
// stuck stream then remains until its write returns. The error is the reason why the line last was
// not written.
func (c *Console) Close(ctx context.Context, last string) error {
	var err error
	if last != "" {
		err = c.finish(ctx, last)
	}
	for _, p := range c.distinct() {
		p.close()
		select {
		// The queue of this printer has been written.
		case <-p.ended:
		// The goroutine of this printer is still in a write, and ends when the write returns.
		case <-ctx.Done():
		}
	}
	return err
}

// finish writes the last line of standard output.
func (c *Console) finish(ctx context.Context, last string) error {
	done := make(chan error, 1)
	c.printers[wire.ToStdout].add(queuedBlock{Block: Block{[]byte(last + "\n"), wire.ToStdout}, always: true, done: done})
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		// The channel done has capacity 1, so the printer does not block on it later.
		err = context.Cause(ctx)
	}
	if err != nil {
		// Standard error may still work, so the result is not lost.
		c.sayWhole(fmt.Sprintf("the result could not be written to standard output: %v: %s", Cause(err), last))
	}
	return err
}
