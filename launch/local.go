package launch

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

	"github.com/elrun/elrun/internal/shm"
)

// local is the process of a peer on this host. Its life:
//
//	startLocal  makes two pipes and a socket pair, and starts the process in a process
//	            group of its own
//	watch       passes on output and messages, and
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
// methods other than watch are not safe for concurrent use.
type local struct {
	index int
	// to gets everything that comes from the process, from the goroutines of watch.
	to  receiver
	cmd *exec.Cmd
	// pipe is the socket to the process. It reads through senders, which records the process that
	// sent a message.
	pipe    *pipe
	senders *senders
	out     *outbox        // messages to the peer, which may be stopped
	files   [2]*os.File    // read ends of its output, by target
	stdin   io.WriteCloser // pipe to its standard input, which the end of the process closes; may be nil
	orphans *childReaper   // records the children of this launcher; may be nil
	peer    *os.Process    // the process that said hello; nil if unknown or the same as cmd
	words   *shm.WordWatch // watches the words of the programs; nil for none
	watched atomic.Bool    // the program that has said hello last is watched
	exited  chan struct{}  // closed when the process has ended
	ends    sync.WaitGroup // the goroutines of watchWord
	halted  bool           // in an agent: the process was stopped at the last look
}

const (
	// childFD is the descriptor of the socket in the child: the first after the standard ones.
	childFD = 3
	// leftover is how long the output of an ended child is still read. Processes that left the
	// child's process group may outlive the child and write to its output.
	leftover = time.Second
)

// startLocal sets the descriptors and attributes of cmd and starts it as the process of peer index,
// on a host that has the given number of peers. If piped is set, its standard input comes from
// input; otherwise it is cmd.Stdin.
func startLocal(index, peers int, cmd *exec.Cmd, piped bool, to receiver, orphans *childReaper) (*local, error) {
	c := &local{index: index, to: to, cmd: cmd, out: newOutbox(nil), orphans: orphans, exited: make(chan struct{})}
	theirs, err := c.open()
	if err == nil && piped {
		c.stdin, err = cmd.StdinPipe()
	}
	if err == nil {
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = theirs[0], theirs[1], theirs[2:]
		cmd.SysProcAttr = processAttributes()
		start := func() error { return orphans.start(cmd) }
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
func (c *local) open() (theirs []*os.File, err error) {
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
func (c *local) close() {
	for _, f := range c.files {
		if f != nil {
			_ = f.Close()
		}
	}
	if c.pipe != nil {
		_ = c.pipe.conn.Close()
	}
}

// signal implements process.
func (c *local) signal(sig syscall.Signal) { _ = syscall.Kill(-c.cmd.Process.Pid, sig) }

// setPID implements process.
func (c *local) setPID(pid int) {
	if pid > 0 && pid != c.cmd.Process.Pid {
		c.peer, _ = os.FindProcess(pid) // nil if it has ended
	}
}

// pid implements process.
func (c *local) pid() int {
	if c.peer != nil {
		return c.peer.Pid
	}
	return c.cmd.Process.Pid
}

// ask implements process.
func (c *local) ask(sig syscall.Signal) {
	if c.peer == nil || c.peer.Signal(sig) != nil {
		c.signal(sig)
	}
	c.signal(syscall.SIGCONT)
}

// input implements process.
func (c *local) input(part []byte) error {
	switch {
	case c.stdin == nil:
		return errInputClosed
	case len(part) == 0:
		return c.stdin.Close()
	}
	_, err := c.stdin.Write(part)
	return err
}

// look implements process.
func (c *local) look() (r haltReport, now bool) {
	pid := c.pid()
	return haltReport{pid, stopped(pid)}, true
}

// send implements process. The message is dropped if the queue is full.
func (c *local) send(m message) {
	if m.Start != nil && c.watched.Load() {
		order := *m.Start
		order.Watched = true
		m.Start = &order
	}
	if line, err := m.encode(); err == nil {
		c.out.add(line, history)
	}
}

// watch implements process.
func (c *local) watch() {
	var messages, writer, streams sync.WaitGroup
	for i, f := range c.files {
		streams.Go(func() { readOutput(f, target(i), c.to) })
	}
	messages.Go(func() { c.readMessages() })
	writer.Go(func() { c.out.run(c.pipe.write) })
	exit := c.wait()
	// Kill the processes that the program has left in its process group. The ID of a process group
	// is not reused while the group has members.
	c.signal(syscall.SIGKILL)
	// This deadline has passed already, so readMessages ends after the messages that are buffered
	// (drainReader).
	_ = c.pipe.conn.SetReadDeadline(exit.at)
	close(c.exited)
	messages.Wait()
	c.ends.Wait()
	c.senders.drop()
	c.abandon()
	c.out.close()
	writer.Wait()
	limit := time.Now().Add(leftover)
	c.to.ended(exit)
	for _, f := range c.files {
		_ = f.SetReadDeadline(limit)
	}
	streams.Wait()
	c.close()
}

// abandon closes the socket. The peer then takes its launcher for dead, and leaves its group.
func (c *local) abandon() { _ = c.pipe.conn.Close() }

// wait waits for the end of the process and returns its Exit.
func (c *local) wait() Exit {
	_ = c.cmd.Wait() // the process state has the same information
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

// readMessages passes on the peer's messages. A peer that violates the protocol loses its
// connection, and so takes the launcher for dead.
func (c *local) readMessages() {
	for {
		m, err := c.pipe.receive()
		switch {
		// The peer has closed the socket, or its process has ended: then watch sets a deadline that
		// has passed.
		case errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil:
			c.abandon()
			c.to.protocolError(err)
			return
		}
		if m.Hello != nil {
			c.hello(m, c.senders.last)
			continue
		}
		c.to.message(m, c.senders.last)
	}
}

// readOutput passes on one output stream up to its end.
func readOutput(f *os.File, t target, to receiver) {
	in := &drainReader{stream: f}
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		to.output(t, buf[:n])
		if err != nil {
			to.outputEnd(t)
			return
		}
	}
}
