package launch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
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
	result bool           // it had reported the result before
	at     time.Time      // when the launcher learned of it
}

// failed reports whether the process did not end with status 0.
func (e Exit) failed() bool { return e.Code != 0 }

// String says how, as in "exited with status 3".
func (e Exit) String() string {
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

// notice is what a child's goroutines tell the launcher's loop; one of msg, err and exit is
// set.
type notice struct {
	from int
	msg  *message
	pid  int   // of the process that sent msg; 0 if that is not known
	err  error // the child does not keep to the protocol
	exit *Exit // the last notice of a child
}

// child is one process from the launcher's side. Its life:
//
//	startChild   makes two pipes and a socket pair, and starts the process in a process
//	             group of its own
//	supervise    passes on output and messages, waits
//	             1. for the process,
//	             2. for the messages that are in the socket then,
//	             3. tells the launcher's loop of the end, the last that the loop hears,
//	             4. and goes on with the output until the streams end, which they do at
//	                once, unless somebody outside the process group holds them open
//
// So when the loop hears of the end, all that the peer said has been passed on, and no
// process that keeps the output open delays it.
//
// The process may be a shell, or another wrapper, behind which the peer runs. The kernel
// names the sender of each message (SCM_CREDENTIALS), so that the peer itself is asked to
// leave, and the wrapper has its turn after it.
type child struct {
	index   int
	cmd     *exec.Cmd
	pipe    *pipe
	senders *senders
	out     *outbox     // messages for the peer, which may be stopped
	files   [2]*os.File // our ends of its output, by target
	log     *lineWriter // writes to logFile; nil without --log-dir
	logFile io.Closer
	orphans *orphanage // knows which processes are children of this one; may be nil

	// The launcher's loop alone uses these.

	peer   *os.Process // that said hello; nil if it is not known
	begun  time.Time
	result bool      // it has reported the result
	asked  time.Time // when the launcher asked it to leave; zero if it has not
	first  []byte    // event about its start, set before supervise
}

const (
	// childFD is the first descriptor after the standard ones.
	childFD = 3
	// leftover is how long a child's output stays open for processes that left its
	// group and outlive it.
	leftover = time.Second
)

// startChild starts cmd, which has everything but descriptors and attributes. The
// child's ends of pipes and socket are closed here once it has them: a launcher that
// kept them would never see the streams end. log may be nil.
func startChild(index int, cmd *exec.Cmd, log *os.File, orphans *orphanage) (*child, error) {
	c := &child{index: index, cmd: cmd, out: newOutbox(nil), orphans: orphans, begun: time.Now()}
	if log != nil {
		c.logFile, c.log = log, &lineWriter{w: log}
	}
	theirs, err := c.open()
	if err == nil {
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = theirs[0], theirs[1], theirs[2:]
		cmd.SysProcAttr = processAttributes()
		err = orphans.start(cmd)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("launch: start peer %d: %w", index, err)
	}
	return c, nil
}

// open makes the pipes and the socket; it returns the child's ends, also on an error.
func (c *child) open() (theirs []*os.File, err error) {
	for i := range c.files {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		c.files[i] = r
		theirs = append(theirs, w)
	}
	conn, f, err := socketPair()
	if err != nil {
		return theirs, err
	}
	theirs = append(theirs, f)
	c.senders, err = newSenders(conn)
	c.pipe = newPipe(c.senders)
	return theirs, err
}

// openLog opens the log of a peer, nil without a directory. The log of a peer that is
// started again goes on.
func openLog(dir string, index int, again bool) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	path := filepath.Join(dir, strconv.Itoa(index)+".log")
	if again {
		return private.Append(path)
	}
	return private.Create(path)
}

// socketPair returns two connected stream sockets, one of them for a child.
func socketPair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock() // nobody may fork until both are close-on-exec
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	// The child's end stays in blocking mode, as any program expects it that gets it;
	// FileConn puts only ours into the poller, which deadlines need.
	ours := os.NewFile(uintptr(fds[0]), "launcher")
	defer ours.Close() // FileConn duplicates it
	theirs := os.NewFile(uintptr(fds[1]), "peer")
	conn, err := net.FileConn(ours)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// close gives back our ends.
func (c *child) close() {
	for _, f := range c.files {
		if f != nil {
			_ = f.Close()
		}
	}
	if c.logFile != nil {
		_ = c.logFile.Close()
	}
	if c.pipe != nil {
		_ = c.pipe.conn.Close()
	}
}

// signal sends sig to the child's process group. A nil child, which was not started or
// has ended, has none.
func (c *child) signal(sig syscall.Signal) {
	if c != nil {
		_ = syscall.Kill(-c.cmd.Process.Pid, sig)
	}
}

// met notes which process the peer is.
func (c *child) met(pid int) {
	if pid > 0 && pid != c.cmd.Process.Pid {
		c.peer, _ = os.FindProcess(pid) // none if it has ended meanwhile
	}
}

// pid returns the process of the peer, as far as that is known.
func (c *child) pid() int {
	if c.peer != nil {
		return c.peer.Pid
	}
	return c.cmd.Process.Pid
}

// ask sends sig to the peer alone, which may run behind a shell that is to go on after it;
// to the whole group where the peer is not known or has ended. A stopped process wakes, for
// it could not see the signal.
func (c *child) ask(sig syscall.Signal) {
	if c.peer == nil || c.peer.Signal(sig) != nil {
		c.signal(sig)
	}
	c.signal(syscall.SIGCONT)
}

// send hands a message to the writer. It does not wait: a peer that is stopped reads later.
func (c *child) send(m message) {
	if line, err := m.encode(); err == nil {
		c.out.add(line, history)
	}
}

// supervise passes on output and messages until the process has ended and all of
// them have been read, and says how it ended as soon as it has.
func (c *child) supervise(con *console, plain bool, notices chan<- notice) {
	if c.first != nil {
		con.send(block{append(c.first, '\n'), toEvents})
	}
	var messages, writer, streams sync.WaitGroup
	for i, f := range c.files {
		streams.Go(func() {
			if err := c.copyOutput(f, target(i), con, plain); err != nil {
				con.say(fmt.Sprintf("peer %d: its log: %v; what cannot be written is dropped", c.index, cause(err)))
			}
		})
	}
	messages.Go(func() { c.readMessages(con, notices) })
	writer.Go(func() { c.out.run(c.pipe.write) })
	exit := c.wait()
	// What the program started and left behind ends with it. A process group keeps its
	// number from being used again as long as it has members.
	c.signal(syscall.SIGKILL)
	_ = c.pipe.conn.SetReadDeadline(exit.at)
	messages.Wait()
	_ = c.pipe.conn.Close()
	c.out.close()
	writer.Wait()
	limit := time.Now().Add(leftover)
	notices <- notice{from: c.index, exit: &exit}
	for _, f := range c.files {
		_ = f.SetReadDeadline(limit)
	}
	streams.Wait()
	c.close()
}

// wait returns how the process ended.
func (c *child) wait() Exit {
	_ = c.cmd.Wait() // an error only repeats what the state says
	c.orphans.ended(c.cmd.Process.Pid)
	e := Exit{Index: c.index, PID: c.cmd.Process.Pid, Code: -1, at: time.Now()}
	if s := c.cmd.ProcessState; s != nil {
		e.Code = s.ExitCode()
		if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			e.Signal = ws.Signal()
		}
	}
	return e
}

// readMessages passes on what the child sends. A child that sends something else
// loses its connection and so believes that the launcher died.
func (c *child) readMessages(con *console, notices chan<- notice) {
	for {
		m, err := c.pipe.receive()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil:
			_ = c.pipe.conn.Close()
			notices <- notice{from: c.index, err: err}
			return
		}
		if m.Event != nil {
			con.send(block{append(bytes.Clone(m.Event), '\n'), toEvents})
		}
		notices <- notice{from: c.index, msg: &m, pid: c.senders.last}
	}
}

// copyOutput passes on one output stream in blocks of whole lines. An error concerns
// the log file; the stream is read to its end all the same.
func (c *child) copyOutput(r *os.File, to target, con *console, plain bool) error {
	lines := splitter{prefix: fmt.Sprintf("[%d] ", c.index), max: maxLine}
	if plain {
		lines.prefix = ""
	}
	logged := splitter{max: maxLine}
	var logErr error
	// The log gets lines without a prefix. Both streams share the file; blocks of whole
	// lines appended by one write each do not mix.
	emit := func(shown, log []byte) {
		if len(log) > 0 {
			_, err := c.log.Write(log)
			logErr = cmp.Or(logErr, err)
		}
		if len(shown) > 0 {
			con.send(block{shown, to})
		}
	}
	in := &leftovers{stream: r}
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		var log []byte
		if c.log != nil {
			log = logged.feed(buf[:n])
		}
		emit(lines.feed(buf[:n]), log)
		if err != nil {
			emit(lines.flush(), logged.flush())
			return logErr
		}
	}
}
