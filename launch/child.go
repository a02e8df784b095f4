package launch

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/private"
)

// Exit is the end of a peer's process.
type Exit struct {
	Index int // local index
	// PID is the process ID.
	PID    int
	Code   int            // exit status, -1 if a signal ended it
	Signal syscall.Signal // 0 if no signal ended it
	// Asked is set if the peer was asked to leave, by the launcher or by SIGTERM, or has left by
	// Group.Leave; also if it came after the job had finished, and was told so. Its status does not
	// count, and it is not started again. Asked is not set if a SIGTERM came after the peer had
	// reported the result.
	Asked  bool
	Lost   bool           // the connection to its host broke: the process may run on for a moment
	result bool           // the process had reported the result before its end
	by     syscall.Signal // the signal on which the agent asked the process to leave
	at     time.Time      // when the launcher learned of the end
}

// failed reports whether the process did not end with status 0.
func (e Exit) failed() bool { return e.Code != 0 }

// String describes the end, as in "exited with status 3".
func (e Exit) String() string {
	if e.Lost {
		return "was lost with the connection to its host"
	}
	if e.Signal != 0 {
		return fmt.Sprintf("was killed by signal %d (%v)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exited with status %d", e.Code)
}

// compareCause orders exits so that the likely cause of the other exits comes first: deaths by a
// signal first, then by time. The kernel closes the sockets of a killed process before its parent
// can wait for it, so the other peers may have ended before the launcher learns of the death.
func compareCause(a, b Exit) int {
	bySignal := func(e Exit) int {
		if e.Signal != 0 {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(bySignal(a), bySignal(b)), a.at.Compare(b.at))
}

// notice is a message from a child's goroutines to the launcher's loop. Exactly one of msg, err,
// halt, dying and exit is set.
type notice struct {
	// from is the local index of the process, or from maxPeers on the index of a service or task.
	from  int
	msg   *message
	pid   int   // the process that sent msg, or that was stopped; 0 if unknown
	err   error // a violation of the protocol by the child
	halt  *haltReport
	dying elastic.ID // the program that said hello by this ID has ended
	exit  *Exit      // always the last notice of a child
}

// haltReport says whether process PID is stopped by a signal (state T).
type haltReport struct {
	PID int  `json:"pid"`
	On  bool `json:"on"`
}

// process is a peer's process, on this host or through an agent on another host.
//
// It may be a shell or another wrapper with the peer as its child.
type process interface {
	// watch passes the messages, the output and the end of the process to its receiver. It returns
	// when the process and its output have ended.
	watch()
	// send queues a message for the writer. It does not block on a peer that does not read, for
	// example because it is stopped.
	send(m message)
	// signal sends sig to the process group. After the end of the process it does nothing.
	signal(sig syscall.Signal)
	// ask sends sig to the peer alone: a shell that started the peer has to go on after the peer's
	// end. If the peer is unknown or has ended, the whole process group gets sig. A stopped process
	// is continued, because it could not handle the signal.
	ask(sig syscall.Signal)
	// input passes on a part of the standard input, or its end if the part is empty. It returns when
	// the process has taken the part. An error means that the process takes no more. Unlike the
	// other methods it may be called from any goroutine, by one at a time.
	input(part []byte) error
	// setPID records the process ID of the peer.
	setPID(pid int)
	// pid returns the process ID of the peer, or of a wrapper that started the peer; 0 if unknown.
	pid() int
	// look reports whether the process is stopped by a signal. If it is on another host, now is false,
	// and the receiver's halted is called later. An agent looks at its processes by itself, too.
	look() (r haltReport, now bool)
}

// receiver gets the output, the messages and the end of a process. Calls about the same output
// stream are not concurrent, and neither are the other calls. The end comes after all messages;
// output may still come after the end.
type receiver interface {
	output(t target, part []byte) // the caller owns part
	outputEnd(t target)
	message(m message, pid int) // pid is 0 if the sender is not known
	protocolError(err error)    // the process violates the protocol
	halted(r haltReport)
	// dying reports that the program that said hello by an ID has ended, before its status is known.
	// It comes after that hello, but perhaps before later messages. It may be missing.
	dying(id elastic.ID)
	ended(e Exit)
}

// child is the launcher's side of a peer's process. Only the launcher's loop uses it.
type child struct {
	process
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
func (c *child) unsaved(e Exit, grace time.Duration) string {
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
	con   *console
	// notices has no buffer: the loop reads it until all processes have ended.
	notices chan<- notice
	streams [2]outputStream // by target
	logFile io.Closer       // nil without --log-dir
}

// outputStream passes one output stream of a process to the console and to the log.
type outputStream struct {
	shown, logged splitter
	log           *lineWriter // nil without --log-dir
	err           error       // first error of the log
}

// newFeed returns the feed of a peer. prefix begins each of its lines on the console. The feed
// owns log, which may be nil.
func newFeed(index int, prefix string, con *console, notices chan<- notice, log *os.File) *feed {
	f := &feed{index: index, con: con, notices: notices, words: &lastWords{}}
	var w *lineWriter
	if log != nil {
		f.logFile, w = log, &lineWriter{w: log}
	}
	for i := range f.streams {
		f.streams[i] = outputStream{splitter{prefix: prefix, max: maxLine}, splitter{max: maxLine}, w, nil}
	}
	return f
}

// output implements receiver. Lines in the log have no prefix. Both streams append to the same
// file; each write has whole lines only, so that lines do not mix.
func (f *feed) output(t target, part []byte) {
	s := &f.streams[t]
	if t == toStderr {
		f.words.add(part)
	}
	var logged []byte
	if s.log != nil {
		logged = s.logged.feed(part)
	}
	f.emit(t, s.shown.feed(part), logged)
}

// outputEnd implements receiver.
func (f *feed) outputEnd(t target) {
	s := &f.streams[t]
	if t == toStderr {
		f.words.end()
	}
	f.emit(t, s.shown.flush(), s.logged.flush())
	if s.err != nil {
		f.con.say(fmt.Sprintf("log of peer %d: %v; lines that cannot be written are dropped", f.index, cause(s.err)))
	}
}

// emit passes on whole lines. A nil slice is skipped.
func (f *feed) emit(t target, shown, logged []byte) {
	s := &f.streams[t]
	if len(logged) > 0 {
		_, err := s.log.Write(logged)
		s.err = cmp.Or(s.err, err)
	}
	if len(shown) > 0 {
		f.con.send(block{shown, t})
	}
}

// message implements receiver.
func (f *feed) message(m message, pid int) {
	if m.Event != nil {
		f.event(m.Event)
	}
	f.notices <- notice{from: f.index, msg: &m, pid: pid}
}

// event passes a line to the event log. It copies the line.
func (f *feed) event(line []byte) { f.con.send(block{append(bytes.Clone(line), '\n'), toEvents}) }

// protocolError implements receiver.
func (f *feed) protocolError(err error) { f.notices <- notice{from: f.index, err: err} }

// halted implements receiver.
func (f *feed) halted(r haltReport) { f.notices <- notice{from: f.index, halt: &r} }

// dying implements receiver.
func (f *feed) dying(id elastic.ID) { f.notices <- notice{from: f.index, dying: id} }

// ended implements receiver.
func (f *feed) ended(e Exit) { f.notices <- notice{from: f.index, exit: &e} }

// close closes the log file.
func (f *feed) close() {
	if f.logFile != nil {
		_ = f.logFile.Close()
	}
}

// openLog opens the log of a peer, which only this user may read. It returns nil if dir is "". If
// again is set, for a restarted peer, it appends to the file, so that the output before the crash
// is kept.
func openLog(dir, name string, again bool) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	path := filepath.Join(dir, name+".log")
	if again {
		return private.Append(path)
	}
	return private.Create(path)
}
