package proc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// Local is the process of a peer on this host. Its life:
//
//	StartLocal  makes two pipes and a socket pair, and starts the process in a process
//	            group of its own
//	Watch       passes on output and messages, and
//	            1. waits for the process,
//	            2. reads the messages that are still in the socket,
//	            3. reports the end,
//	            4. and continues with the output until the streams end. They end at once,
//	               unless a process outside the process group holds them open
//
// So the end is reported after all messages of the peer, and a process that keeps the output open
// does not delay the report.
//
// The kernel tells which process sent each message (SCM_CREDENTIALS). So a request to leave goes to
// the peer itself, and a wrapper process around the peer can continue after the peer's end. The
// methods other than Watch are not safe for concurrent use.
type Local struct {
	Index int
	// to gets everything that comes from the process, from the goroutines of Watch.
	to  Receiver
	Cmd *exec.Cmd
	// pipe is the socket to the process. It reads through senders, which records the process that
	// sent a message.
	pipe    *wire.Pipe
	senders *senders
	out     *wire.Outbox   // messages to the peer, which may be stopped
	files   [2]*os.File    // read ends of its output, by target
	stdin   io.WriteCloser // pipe to its standard input, which the end of the process closes; may be nil
	orphans *ChildReaper   // records the children of this launcher; may be nil
	Peer    *os.Process    // the process that said hello, or for which its sidecar said it; nil if unknown, or the same as Cmd and without a sidecar
	sidecar atomic.Bool    // a sidecar has said hello last
	Words   *shm.WordWatch // watches the words of the programs; nil for none
	Watched atomic.Bool    // the program that has said hello last is watched
	memory  *os.File       // of the program that has said hello last, with the record of its calls; nil for none
	exited  chan struct{}  // closed when the process has ended
	ends    sync.WaitGroup // the goroutines that watch words
	begun   time.Time      // when the process was started
	Halted  bool           // in an agent: the process was stopped at the last look
}

const (
	// ChildFD is the descriptor of the socket in the child: the first after the standard ones.
	ChildFD = 3
	// Leftover is how long the output of an ended child is still read. Processes that left the
	// child's process group may outlive the child and write to its output.
	Leftover = time.Second
)

// StartLocal sets the descriptors and attributes of cmd and starts it as the process of peer index,
// on a host that has the given number of peers. If piped is set, its standard input comes from
// input; otherwise it is cmd.Stdin.
func StartLocal(index, peers int, cmd *exec.Cmd, piped bool, to Receiver, orphans *ChildReaper) (*Local, error) {
	c := &Local{Index: index, to: to, Cmd: cmd, out: wire.NewOutbox(nil), orphans: orphans, exited: make(chan struct{}), begun: time.Now()}
	theirs, err := c.open()
	if err == nil && piped {
		c.stdin, err = cmd.StdinPipe()
	}
	if err == nil {
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = theirs[0], theirs[1], theirs[2:]
		cmd.SysProcAttr = processAttributes()
		start := func() error { return orphans.Start(cmd) }
		if isCrowded(peers) {
			err = withTimerSlack(crowdedSlack, start)
		} else {
			err = start()
		}
	}
	// Close the child's ends also if the start failed. If this process kept a write end, it would
	// never read the end of the stream.
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("launch: start peer %d: %w", index, err)
	}
	return c, nil
}

// open makes the pipes and the socket. It returns the child's ends, also with an error.
func (l *Local) open() (theirs []*os.File, err error) {
	for i := range l.files {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		l.files[i] = r
		theirs = append(theirs, w)
	}
	conn, f, err := socketPair()
	if err != nil {
		return theirs, err
	}
	theirs = append(theirs, f)
	l.senders, err = newSenders(conn)
	l.pipe = wire.NewPipe(l.senders)
	return theirs, err
}

// socketPair returns two connected stream sockets; the file is for a child.
func socketPair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock() // a fork must not happen before both are close-on-exec
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	// The child's end stays in blocking mode, as programs expect. Deadlines need the runtime's
	// poller, so FileConn registers the launcher's end with it.
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

// close closes the launcher's ends.
func (l *Local) close() {
	for _, f := range l.files {
		if f != nil {
			_ = f.Close()
		}
	}
	if l.pipe != nil {
		_ = l.pipe.Conn.Close()
	}
}

// Signal implements Process.
func (l *Local) Signal(sig syscall.Signal) { _ = syscall.Kill(-l.Cmd.Process.Pid, sig) }

// SetPID implements Process.
func (l *Local) SetPID(pid int) {
	if pid > 0 && (pid != l.Cmd.Process.Pid || l.sidecar.Load()) {
		l.Peer, _ = os.FindProcess(pid) // nil if it has ended
	}
}

// PID implements Process.
func (l *Local) PID() int {
	if l.Peer != nil {
		return l.Peer.Pid
	}
	return l.Cmd.Process.Pid
}

// Ask implements Process.
func (l *Local) Ask(sig syscall.Signal) {
	if l.Peer == nil || l.Peer.Signal(sig) != nil {
		l.Signal(sig)
	}
	l.Signal(syscall.SIGCONT)
}

// Input implements Process.
func (l *Local) Input(part []byte) error {
	switch {
	case l.stdin == nil:
		return ErrInputClosed
	case len(part) == 0:
		return l.stdin.Close()
	}
	_, err := l.stdin.Write(part)
	return err
}

// Look implements Process.
func (l *Local) Look() (r wire.HaltReport, now bool) {
	pid := l.PID()
	return wire.HaltReport{PID: pid, On: Stopped(pid)}, true
}

// Send implements Process. The message is dropped if the queue is full.
func (l *Local) Send(m wire.Message) {
	if m.Start != nil && l.Watched.Load() {
		order := *m.Start
		order.Watched = true
		m.Start = &order
	}
	if line, err := wire.Encode(m); err == nil {
		l.out.Add(line, wire.History)
	}
}

// Watch implements Process.
func (l *Local) Watch() {
	var messages, writer, streams sync.WaitGroup
	for i, f := range l.files {
		streams.Go(func() { readOutput(f, wire.Target(i), l.to) })
	}
	messages.Go(func() { l.readMessages() })
	writer.Go(func() { l.out.Run(l.pipe.Write) })
	exit := l.wait()
	// Kill the processes that the program has left in its process group. The ID of a process group
	// is not reused while the group has members.
	l.Signal(syscall.SIGKILL)
	// This deadline has passed already, so readMessages ends after the messages that are buffered
	// (DrainReader).
	_ = l.pipe.Conn.SetReadDeadline(exit.At)
	close(l.exited)
	messages.Wait()
	l.ends.Wait()
	l.senders.drop()
	l.Abandon()
	l.out.Close()
	writer.Wait()
	limit := time.Now().Add(Leftover)
	l.recover(exit)
	l.to.Ended(exit)
	for _, f := range l.files {
		_ = f.SetReadDeadline(limit)
	}
	streams.Wait()
	l.close()
}

// keep keeps the memory of a program, whose file stays with the caller, in place of that of an earlier one.
func (l *Local) keep(file *os.File) {
	if l.memory != nil {
		_ = l.memory.Close() // it was only read
	}
	l.memory = nil
	if fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		l.memory = os.NewFile(uintptr(fd), "memory")
	}
}

// recover passes on the record of a program that has failed. The program is gone, so nothing changes the memory, unless
// another process has it; then the record may be wrong, and is checked all the same.
func (l *Local) recover(exit spec.Exit) {
	if l.memory == nil {
		return
	}
	defer l.memory.Close()
	memory := make([]byte, flight.MirrorSize)
	if exit.Code == 0 || shm.ReadRest(l.memory, memory) != nil {
		return
	}
	if r, err := flight.Recover(memory, exit.At); err == nil && len(r.Sessions) > 0 {
		r.Index = l.Index
		l.to.Remains(r)
	}
}

// Abandon closes the socket. The peer then takes its launcher for dead, and leaves its group.
func (l *Local) Abandon() { _ = l.pipe.Conn.Close() }

// wait waits for the end of the process and returns its Exit.
func (l *Local) wait() spec.Exit {
	_ = l.Cmd.Wait() // the process state has the same information
	l.orphans.Ended(l.Cmd.Process.Pid)
	e := spec.Exit{Index: l.Index, PID: l.Cmd.Process.Pid, Code: -1, At: time.Now()}
	e.Ran = e.At.Sub(l.begun)
	if s := l.Cmd.ProcessState; s != nil {
		e.Code, e.CPU = s.ExitCode(), s.SystemTime()+s.UserTime()
		if used, ok := s.SysUsage().(*syscall.Rusage); ok {
			e.MaxRSS = maxRSS(used)
		}
		if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			e.Signal = ws.Signal()
		}
	}
	return e
}

// maxRSS returns the most memory of a child in bytes. The kernel counts from the memory of this process, which
// has started the child, so it is 0 if this process had as much.
func maxRSS(child *syscall.Rusage) int64 {
	var own syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &own) != nil || child.Maxrss <= own.Maxrss {
		return 0
	}
	return child.Maxrss * maxRSSUnit
}

// readMessages passes on the peer's messages. A peer that violates the protocol loses its
// connection, and so takes the launcher for dead.
func (l *Local) readMessages() {
	for {
		m, err := l.pipe.Receive()
		switch {
		// The peer has closed the socket, or its process has ended: then Watch sets a deadline that
		// has passed.
		case errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil:
			l.Abandon()
			l.to.ProtocolError(err)
			return
		}
		if m.Hello != nil {
			l.hello(m, l.senders.last)
			continue
		}
		l.to.Message(m, l.senders.last)
	}
}

// readOutput passes on one output stream up to its end.
func readOutput(f *os.File, t wire.Target, to Receiver) {
	in := &wire.DrainReader{Stream: f}
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		to.Output(t, buf[:n])
		if err != nil {
			to.OutputEnd(t)
			return
		}
	}
}

// hello passes on the hello of a program, and watches the word that came with it.
func (l *Local) hello(m wire.Message, pid int) {
	word := l.takeWord()
	l.Watched.Store(word != nil) // before the answer to hello
	id, program := m.Hello.ID, l.senders.principal(m.For)
	l.sidecar.Store(program != pid)
	m.For = 0
	l.to.Message(m, program)
	if word == nil {
		return
	}
	l.ends.Go(func() {
		defer word.Close()
		select {
		case <-word.Died():
			l.to.Dying(id)
		case <-l.exited:
		}
	})
}

// takeWord begins to watch the word of the program that says hello. It returns nil if there is none.
func (l *Local) takeWord() *shm.WatchedWord {
	file := l.senders.take()
	if file == nil {
		return nil
	}
	l.keep(file)
	word, err := l.Words.Watch(file)
	if err != nil {
		return nil
	}
	return word
}
