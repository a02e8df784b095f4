package launch

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// console is where the output of all peers comes together: one goroutine writes it, in
// blocks of whole lines, so that lines never mix. Senders wait in turn for the
// writer, which bounds memory and gives a quiet peer its turn beside a flooding one:
//
//	peer 0 stdout --block--\
//	peer 0 stderr --block---+--> blocks --> run --> streams
//	peer 1 stdout --block--/                 ^
//	launcher ------------- notes, bar -------+
//
// Channels are used and no lock, since writing to a terminal or pipe may take for
// ever: a lock would hold up the launcher, which must still handle signals.
type console struct {
	streams [3]io.Writer // by target
	live    bool         // standard error is a terminal that shows a progress line

	blocks chan block    // from peers, through send
	given  chan struct{} // closed when senders shall not wait any more
	notes  chan string   // from the launcher, without line end; sending never waits
	bar    chan string   // progress line; only the newest matters
	broken chan error    // first failed write

	// The rest belongs to run.

	shown string // progress line on the screen
	work  sync.WaitGroup
	once  sync.Once // for giveUp
}

// target is where a block goes.
type target int

const (
	toStdout target = iota
	toStderr
	toEvents
)

// block is one or more whole lines.
type block struct {
	text []byte
	to   target
}

// maxNotes is how many of the launcher's own lines may wait for a stuck terminal.
const maxNotes = 256

// newConsole starts a console; close ends it. events may be nil.
func newConsole(stdout, stderr, events io.Writer, live bool) *console {
	c := &console{streams: [3]io.Writer{stdout, stderr, events}, live: live,
		blocks: make(chan block), given: make(chan struct{}), notes: make(chan string, maxNotes),
		bar: make(chan string, 1), broken: make(chan error, 1)}
	c.work.Go(c.run)
	return c
}

// run writes until blocks is closed, then what is left of the notes.
func (c *console) run() {
	for {
		select {
		case b, ok := <-c.blocks:
			if !ok {
				c.drain()
				return
			}
			c.write(b)
		case s := <-c.notes:
			c.write(note(s))
		case s := <-c.bar:
			c.draw(s)
		}
	}
}

// drain writes the notes that are waiting and takes the progress line away.
func (c *console) drain() {
	for {
		select {
		case s := <-c.notes:
			c.write(note(s))
		default:
			c.draw("")
			return
		}
	}
}

// note is a line of the launcher's own.
func note(s string) block { return block{append([]byte("elrun: "+s), '\n'), toStderr} }

// write puts a block on its stream. After a failed write to standard output or error
// the rest is dropped, so that peers do not hang on a console that nobody reads.
func (c *console) write(b block) {
	if b.to != toEvents {
		c.draw("")
	}
	c.put(b)
}

// draw replaces the progress line, "" by nothing.
func (c *console) draw(s string) {
	if s == c.shown {
		return
	}
	c.shown = s
	c.put(block{[]byte("\r\x1b[K" + s), toStderr})
}

// put writes b as it is.
func (c *console) put(b block) {
	w := c.streams[b.to]
	if w == nil {
		return
	}
	_, err := w.Write(b.text)
	switch {
	case err == nil:
		return
	case b.to == toEvents: // the job matters more
		c.streams[toEvents] = nil
		c.say(fmt.Sprintf("event log: %v; no more events are logged", err))
	default:
		c.streams = [3]io.Writer{}
		c.broken <- err
	}
}

// send hands a block to the writer and waits until it is taken, or giveUp was called.
func (c *console) send(b block) {
	select {
	case c.blocks <- b:
	case <-c.given:
	}
}

// giveUp lets senders go, soon, though the console may be stuck: what has not been
// written by then is lost.
func (c *console) giveUp() {
	c.once.Do(func() { time.AfterFunc(time.Second, func() { close(c.given) }) })
}

// say prints a line of the launcher's own on standard error. It never waits: a line
// that finds maxNotes others waiting is lost.
func (c *console) say(line string) {
	select {
	case c.notes <- line:
	default:
	}
}

// progress shows s as the progress line of a terminal, "" for none, or as a note
// elsewhere.
func (c *console) progress(s string) {
	if !c.live {
		c.say(s)
		return
	}
	select {
	case <-c.bar: // nobody has seen this one
	default:
	}
	select {
	case c.bar <- s:
	default:
	}
}

// close writes last, if any, to standard output after everything else and ends the
// console. No sender may be left. It gives up after limit on a console that is
// stuck, whose goroutine then stays until its write returns.
func (c *console) close(last string, limit time.Duration) {
	end := make(chan struct{})
	go func() {
		defer close(end)
		if last != "" {
			c.send(block{[]byte(last + "\n"), toStdout})
		}
		close(c.blocks)
		c.work.Wait()
	}()
	select {
	case <-end:
	case <-time.After(limit):
	}
}
