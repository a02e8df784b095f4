package launch

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/private"
)

// Exit says how a peer's process ended.
type Exit struct {
	Index  int            // local index
	PID    int            // of the process
	Code   int            // exit status, -1 if a signal ended it
	Signal syscall.Signal // 0 if none did
	Asked  bool           // the launcher had asked it to leave
	Lost   bool           // the connection to its host was lost: it may run on for a moment
	kicked bool           // it was put out of the job on request
	result bool           // it had reported the result before
	by     syscall.Signal // to its agent, which asked it to leave
	at     time.Time      // when the launcher learned of it
}

// failed reports whether the process did not end with status 0.
func (e Exit) failed() bool { return e.Code != 0 }

// String says how, as in "exited with status 3".
func (e Exit) String() string {
	if e.Lost {
		return "was lost with the connection to its host"
	}
	if e.Signal != 0 {
		return fmt.Sprintf("was killed by signal %d (%v)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exited with status %d", e.Code)
}

// compareCause orders exits so that the likely cause of the others comes first: deaths
// by a signal, then by time. A killed process's sockets close before its parent can
// wait for it, so that its group may well be gone by then.
func compareCause(a, b Exit) int {
	bySignal := func(e Exit) int {
		if e.Signal != 0 {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(bySignal(a), bySignal(b)), a.at.Compare(b.at))
}

// notice is what a child's goroutines tell the launcher's loop; one of msg, err, halted and
// exit is set.
type notice struct {
	from int
	msg  *message
	pid  int   // of the process that sent msg, or is stopped; 0 if that is not known
	err  error // the child does not keep to the protocol
	// halted: the process pid was stopped and is being killed.
	halted bool
	exit   *Exit // the last notice of a child
}

// process is a peer's process, on this host or by way of an agent on another.
//
// It may be a shell, or another wrapper, behind which the peer itself runs.
type process interface {
	// watch hands on all that the process says, and its end, and returns when its output has
	// ended, too.
	watch()
	// send hands a message to the writer. It does not wait: a peer that is stopped reads later.
	send(m message)
	// signal sends sig to the process group; one that has ended has none.
	signal(sig syscall.Signal)
	// ask sends sig to the peer alone, which may run behind a shell that is to go on after it;
	// to the whole group where the peer is not known or has ended. A stopped process wakes, for
	// it could not see the signal.
	ask(sig syscall.Signal)
	// met notes which process the peer is.
	met(pid int)
	// pid returns the process of the peer, as far as that is known.
	pid() int
	// suspect ends the process if it is stopped, and says so: at once, or on another host to
	// its receiver.
	suspect() (pid int, halted bool)
}

// receiver takes what a process says. Each output stream, the messages and the end come from
// one goroutine each; the end comes after all messages, and the output may come later still.
type receiver interface {
	output(t target, part []byte) // part belongs to the sender
	outputEnd(t target)
	message(m message, pid int) // pid is 0 if the sender is not known
	mistake(err error)          // the process does not keep to the protocol
	halted(pid int)             // it was stopped, and is being killed
	ended(e Exit)
}

// child is a peer's process from the launcher's side. The launcher's loop alone uses it.
type child struct {
	process
	index   int
	host    string // where it runs; "" for here
	begun   time.Time
	result  bool      // it has reported the result
	asked   time.Time // when the launcher asked it to leave; zero if it has not
	program bool      // it wants to know about the services of its program
	kicked  bool      // it was put out of the job on request
}

// feed is the receiver of a launcher: it passes on output to the console and the log of the
// peer, and the rest to the launcher's loop.
type feed struct {
	index   int
	con     *console
	notices chan<- notice
	streams [2]outputStream // by target
	logFile io.Closer       // nil without --log-dir
}

// outputStream is one output of a process on its way to the console and the log.
type outputStream struct {
	shown, logged splitter
	log           *lineWriter // nil without --log-dir
	err           error       // of the log
}

// newFeed returns the feed of a peer whose lines get a prefix. It owns log, which may be nil.
func newFeed(index int, prefix string, con *console, notices chan<- notice, log *os.File) *feed {
	f := &feed{index: index, con: con, notices: notices}
	var w *lineWriter
	if log != nil {
		f.logFile, w = log, &lineWriter{w: log}
	}
	for i := range f.streams {
		f.streams[i] = outputStream{splitter{prefix: prefix, max: maxLine}, splitter{max: maxLine}, w, nil}
	}
	return f
}

// output implements receiver. The log gets lines without a prefix. Both streams share the
// file; blocks of whole lines appended by one write each do not mix.
func (f *feed) output(t target, part []byte) {
	s := &f.streams[t]
	var logged []byte
	if s.log != nil {
		logged = s.logged.feed(part)
	}
	f.emit(t, s.shown.feed(part), logged)
}

// outputEnd implements receiver.
func (f *feed) outputEnd(t target) {
	s := &f.streams[t]
	f.emit(t, s.shown.flush(), s.logged.flush())
	if s.err != nil {
		f.con.say(fmt.Sprintf("peer %d: its log: %v; what cannot be written is dropped", f.index, cause(s.err)))
	}
}

// emit passes on whole lines.
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

// event passes on a line for the event log.
func (f *feed) event(line []byte) { f.con.send(block{append(bytes.Clone(line), '\n'), toEvents}) }

// mistake implements receiver.
func (f *feed) mistake(err error) { f.notices <- notice{from: f.index, err: err} }

// halted implements receiver.
func (f *feed) halted(pid int) { f.notices <- notice{from: f.index, halted: true, pid: pid} }

// ended implements receiver.
func (f *feed) ended(e Exit) { f.notices <- notice{from: f.index, exit: &e} }

// close closes the log.
func (f *feed) close() {
	if f.logFile != nil {
		_ = f.logFile.Close()
	}
}

// openLog opens the log of a peer, nil without a directory. The log of a peer that is
// started again goes on.
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
