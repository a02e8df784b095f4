package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/printable"
)

// console is where the output of all peers comes together. A printer writes each file, in
// blocks of whole lines, so that lines never mix:
//
//	peer 0 stdout --block--\
//	peer 0 stderr --block---+--> printer of the screen    --> standard output and error
//	launcher ------- notes -+
//	peer 0 events --block------> printer of the event log --> file
//
// Standard output and standard error share a printer where they are one file, a terminal
// say, and so does the event log where it is one of them. Otherwise one that is stuck
// (a pager, a slow disk) does not hold up the others.
type console struct {
	printers [targets]*printer // by target; nil where there is no event log
	live     bool              // standard error is a terminal that shows a progress line
	broken   chan error        // the first write that failed since nobody reads
	once     sync.Once         // for giveUp
	given    chan struct{}     // closed when senders shall not wait any more
}

// target is where a block goes.
type target int

const (
	toStdout target = iota
	toStderr
	toEvents
	targets
)

// String names the target for people.
func (t target) String() string {
	return [targets]string{"standard output", "standard error", "event log"}[t]
}

// block is one or more whole lines.
type block struct {
	text []byte
	to   target
}

// newConsole starts a console; close ends it. events may be nil.
func newConsole(stdout, stderr, events io.Writer, live bool) *console {
	c := &console{live: live, broken: make(chan error, 1), given: make(chan struct{})}
	streams := [targets]io.Writer{stdout, stderr, events}
	for t, w := range streams {
		if w == nil {
			continue
		}
		for earlier, other := range streams[:t] {
			if c.printers[t] == nil && oneFile(w, other, target(t)) {
				c.printers[t] = c.printers[earlier]
			}
		}
		if c.printers[t] == nil {
			c.printers[t] = newPrinter(c.failed, c.given)
		}
		c.printers[t].streams[t] = &lineWriter{w: w}
	}
	for _, p := range c.distinct() {
		p.work.Go(p.run)
	}
	return c
}

// oneFile reports whether two streams share a printer. Of writers that are no files only
// the event log has its own.
func oneFile(a, b io.Writer, of target) bool {
	fa, okA := a.(*os.File)
	fb, okB := b.(*os.File)
	if !okA || !okB {
		return of != toEvents
	}
	ia, errA := fa.Stat()
	ib, errB := fb.Stat()
	return errA == nil && errB == nil && os.SameFile(ia, ib)
}

// distinct returns each printer once, that of standard error last: it tells how the others fare.
func (c *console) distinct() []*printer {
	var out []*printer
	for _, t := range []target{toStdout, toEvents} {
		if p := c.printers[t]; p != nil && p != c.printers[toStderr] && (t == toStdout || p != c.printers[toStdout]) {
			out = append(out, p)
		}
	}
	return append(out, c.printers[toStderr])
}

// send hands a block to its printer. It waits while that is slow, not while it is stuck.
func (c *console) send(b block) {
	if p := c.printers[b.to]; p != nil {
		p.send(b)
	}
}

// giveUp lets senders go, soon, though a printer may be stuck: what has not been written by
// then is lost.
func (c *console) giveUp() {
	c.once.Do(func() { time.AfterFunc(time.Second, func() { close(c.given) }) })
}

// say prints a line of the launcher's own on standard error. It never waits. What peers
// and strangers have said may be part of the line; it cannot control the terminal, and what is too
// long for a line that people read is cut off.
func (c *console) say(line string) { c.sayWhole(clip(line, roomOfLine)) }

// sayWhole is say for a line that people need as it is.
func (c *console) sayWhole(line string) {
	c.printers[toStderr].add(entry{block: note(line), always: true})
}

// noted begins each line of the launcher's own.
const noted = "elrun: "

// note is a line of the launcher's own.
func note(s string) block { return block{[]byte(noted + printable.Line(s) + "\n"), toStderr} }

// progress shows s as the progress line of a terminal, "" for none, or as a note
// elsewhere.
func (c *console) progress(s string) {
	if !c.live {
		c.say(s)
		return
	}
	c.printers[toStderr].show(printable.Line(s))
}

// failed tells people of the first failure of a stream, and the launcher where nobody reads.
func (c *console) failed(t target, err error, final bool) {
	switch {
	case !final:
		c.say(fmt.Sprintf("%v: %v; what cannot be written is dropped", t, cause(err)))
	case t == toEvents: // the job matters more
		c.say(fmt.Sprintf("%v: %v; no more events are logged", t, cause(err)))
	default:
		c.say(fmt.Sprintf("%v: %v", t, cause(err)))
		select {
		case c.broken <- err:
		default:
		}
	}
}

// cause returns an error of a file without its name, which people know.
func cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// close writes last, if any, to standard output after everything else and ends the console.
// No sender may be left. It waits for streams that are stuck until ctx ends; the goroutine
// of one that is stuck then stays until its write returns. An error says why last was not
// written.
func (c *console) close(ctx context.Context, last string) error {
	var err error
	if last != "" {
		err = c.finish(ctx, last)
	}
	for _, p := range c.distinct() {
		p.close()
		select {
		case <-p.ended:
		case <-ctx.Done():
		}
	}
	return err
}

// finish writes the last line of standard output.
func (c *console) finish(ctx context.Context, last string) error {
	done := make(chan error, 1)
	c.printers[toStdout].add(entry{block: block{[]byte(last + "\n"), toStdout}, always: true, done: done})
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		c.sayWhole(fmt.Sprintf("the result could not be written to standard output: %v: %s", cause(err), last))
	}
	return err
}
