package run

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// notice is a message from a child's goroutines to the launcher's loop. Exactly one of msg, err,
// halt, dying, remains and exit is set.
type notice struct {
	// from is the local index of the process, or from MaxPeers on the index of a service or task.
	from    int
	msg     *wire.Message
	pid     int   // the process that sent msg, or that was stopped; 0 if unknown
	err     error // a violation of the protocol by the child
	halt    *wire.HaltReport
	dying   elastic.ID     // the program that said hello by this ID has ended
	remains *flight.Record // of the calls of the child
	exit    *spec.Exit     // always the last notice of a child
}

// child is the launcher's side of a peer's process. Only the launcher's loop uses it.
type child struct {
	proc.Process
	index int
	host  string // where it runs; "" for this host
	// begun is the time of the start, for the restart policy: a process that dies soon counts as a
	// quick death.
	begun   time.Time
	result  bool       // the process has reported the result
	asked   time.Time  // when the launcher asked the process to leave; zero if not yet
	halted  bool       // the process is stopped by a signal
	suspect bool       // members do not hear it, and the launcher looks whether it is stopped
	program bool       // the process wants updates about the services of its program
	kicked  bool       // the process was put out of the job on request
	late    bool       // the process was killed because its grace period was over
	words   *lastWords // of the process
	says    string     // what the program has said of its failure; "" for nothing
	saving  string     // path of the checkpoint that the process writes; "" if it writes none
}

// event records what an event of the process says about it.
func (c *child) event(b event.Body) {
	switch b := b.(type) {
	case event.Done:
		c.result = true
	case event.Saving:
		if c.saving = b.Path; b.Failed != "" {
			c.saving = ""
		}
	case event.Checkpoint, event.Dropped: // after a gap nothing is known
		c.saving = ""
	}
}

// unsaved returns a line about the checkpoint that the process was writing when it ended, "" if
// there was none. A process on a lost host may have written it.
func (c *child) unsaved(e spec.Exit, grace time.Duration) string {
	if c.saving == "" || e.Lost {
		return ""
	}
	path, remedy := c.saving, ""
	if len(path) > shownPath { // the end of a path has the name of the file
		path = "..." + strings.ToValidUTF8(path[len(path)-shownPath:], "")
	}
	if c.late {
		remedy = fmt.Sprintf("; --grace gives it more than %v", grace)
	}
	return fmt.Sprintf("peer %d (pid %d) %v before it had written %s%s", c.index, e.PID, e, path, remedy)
}

// shownPath is the number of bytes of a path in a line.
const shownPath = 72

// feed is the receiver in a launcher: it passes output to the console and to the peer's log, events
// to the event log, and messages and the end to the launcher's loop.
type feed struct {
	words *lastWords // gets the standard error
	index int
	con   *say.Console
	// notices has no buffer: the loop reads it until all processes have ended.
	notices chan<- notice
	streams [2]outputStream // by target
	logFile io.Closer       // nil without --log-dir
}

// outputStream passes one output stream of a process to the console and to the log.
type outputStream struct {
	shown, logged wire.Splitter
	log           *say.LineWriter // nil without --log-dir
	err           error           // first error of the log
}

// newFeed returns the feed of a peer. prefix begins each of its lines on the console. The feed
// owns log, which may be nil.
func newFeed(index int, prefix string, con *say.Console, notices chan<- notice, log *os.File) *feed {
	f := &feed{index: index, con: con, notices: notices, words: &lastWords{}}
	var w *say.LineWriter
	if log != nil {
		f.logFile, w = log, &say.LineWriter{W: log}
	}
	for i := range f.streams {
		f.streams[i] = outputStream{wire.Splitter{Prefix: prefix, Max: wire.MaxLine}, wire.Splitter{Max: wire.MaxLine}, w, nil}
	}
	return f
}

// Output implements proc.Receiver. Lines in the log have no prefix. Both streams append to the same
// file; each write has whole lines only, so that lines do not mix.
func (f *feed) Output(t wire.Target, part []byte) {
	s := &f.streams[t]
	if t == wire.ToStderr {
		f.words.add(part)
	}
	var logged []byte
	if s.log != nil {
		logged = s.logged.Feed(part)
	}
	f.emit(t, s.shown.Feed(part), logged)
}

// OutputEnd implements proc.Receiver.
func (f *feed) OutputEnd(t wire.Target) {
	s := &f.streams[t]
	if t == wire.ToStderr {
		f.words.end()
	}
	f.emit(t, s.shown.Flush(), s.logged.Flush())
	if s.err != nil {
		f.con.Say(fmt.Sprintf("log of peer %d: %v; lines that cannot be written are dropped", f.index, say.Cause(s.err)))
	}
}

// emit passes on whole lines. A nil slice is skipped.
func (f *feed) emit(t wire.Target, shown, logged []byte) {
	s := &f.streams[t]
	if len(logged) > 0 {
		_, err := s.log.Write(logged)
		s.err = cmp.Or(s.err, err)
	}
	if len(shown) > 0 {
		f.con.Send(say.Block{Text: shown, To: t})
	}
}

// Message implements proc.Receiver.
func (f *feed) Message(m wire.Message, pid int) {
	if m.Event != nil {
		f.event(m.Event)
	}
	f.notices <- notice{from: f.index, msg: &m, pid: pid}
}

// event passes a line to the event log. It copies the line.
func (f *feed) event(line []byte) {
	f.con.Send(say.Block{Text: append(bytes.Clone(line), '\n'), To: wire.ToEvents})
}

// ProtocolError implements proc.Receiver.
func (f *feed) ProtocolError(err error) { f.notices <- notice{from: f.index, err: err} }

// Halted implements proc.Receiver.
func (f *feed) Halted(r wire.HaltReport) { f.notices <- notice{from: f.index, halt: &r} }

// Dying implements proc.Receiver.
func (f *feed) Dying(id elastic.ID) { f.notices <- notice{from: f.index, dying: id} }

// Remains implements proc.Receiver.
func (f *feed) Remains(r flight.Record) { f.notices <- notice{from: f.index, remains: &r} }

// Ended implements proc.Receiver.
func (f *feed) Ended(e spec.Exit) { f.notices <- notice{from: f.index, exit: &e} }

// close closes the log file.
func (f *feed) close() {
	if f.logFile != nil {
		_ = f.logFile.Close()
	}
}
