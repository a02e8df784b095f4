package launch

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// local is a process on this host, of a peer of this launcher or agent. Its life:
//
//	startLocal  makes two pipes and a socket pair, and starts the process in a process
//	            group of its own
//	watch       passes on output and messages, waits
//	            1. for the process,
//	            2. for the messages that are in the socket then,
//	            3. tells of the end,
//	            4. and goes on with the output until the streams end, which they do at
//	               once, unless somebody outside the process group holds them open
//
// So when the receiver hears of the end, all that the peer said has been passed on, and no
// process that keeps the output open delays it.
//
// The kernel names the sender of each message (SCM_CREDENTIALS), so that the peer itself is
// asked to leave, and a wrapper around it has its turn after it. One goroutine calls the
// methods but watch.
type local struct {
	index   int
	to      receiver
	cmd     *exec.Cmd
	pipe    *pipe
	senders *senders
	out     *outbox     // messages for the peer, which may be stopped
	files   [2]*os.File // our ends of its output, by target
	orphans *orphanage  // knows which processes are children of this one; may be nil
	peer    *os.Process // that said hello; nil if it is not known
}

const (
	// childFD is the first descriptor after the standard ones.
	childFD = 3
	// leftover is how long a child's output stays open for processes that left its
	// group and outlive it.
	leftover = time.Second
)

// startLocal starts cmd, which has everything but descriptors and attributes. The
// child's ends of pipes and socket are closed here once it has them: a launcher that
// kept them would never see the streams end.
func startLocal(index int, cmd *exec.Cmd, to receiver, orphans *orphanage) (*local, error) {
	c := &local{index: index, to: to, cmd: cmd, out: newOutbox(nil), orphans: orphans}
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

// met implements process.
func (c *local) met(pid int) {
	if pid > 0 && pid != c.cmd.Process.Pid {
		c.peer, _ = os.FindProcess(pid) // none if it has ended meanwhile
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

// suspect implements process.
func (c *local) suspect() (pid int, halted bool) {
	pid = c.pid()
	if halted = stopped(pid); halted {
		c.signal(syscall.SIGKILL)
	}
	return pid, halted
}

// send implements process.
func (c *local) send(m message) {
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
	// What the program started and left behind ends with it. A process group keeps its
	// number from being used again as long as it has members.
	c.signal(syscall.SIGKILL)
	_ = c.pipe.conn.SetReadDeadline(exit.at)
	messages.Wait()
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

// abandon closes the socket: the peer takes its launcher for dead.
func (c *local) abandon() { _ = c.pipe.conn.Close() }

// wait returns how the process ended.
func (c *local) wait() Exit {
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

// readMessages passes on what the peer sends. One that sends something else loses its
// connection and so believes that the launcher died.
func (c *local) readMessages() {
	for {
		m, err := c.pipe.receive()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil:
			c.abandon()
			c.to.mistake(err)
			return
		}
		c.to.message(m, c.senders.last)
	}
}

// readOutput passes on one output stream to its end.
func readOutput(f *os.File, t target, to receiver) {
	in := &leftovers{stream: f}
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
