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
	Peer    *os.Process    // the process that said hello; nil if unknown or the same as Cmd
	Words   *shm.WordWatch // watches the words of the programs; nil for none
	Watched atomic.Bool    // the program that has said hello last is watched
	exited  chan struct{}  // closed when the process has ended
	ends    sync.WaitGroup // the goroutines that watch words
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
	c := &Local{Index: index, to: to, Cmd: cmd, out: wire.NewOutbox(nil), orphans: orphans, exited: make(chan struct{})}
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
func (c *Local) open() (theirs []*os.File, err error) {
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
	c.pipe = wire.NewPipe(c.senders)
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
func (c *Local) close() {
	for _, f := range c.files {
		if f != nil {
			_ = f.Close()
		}
	}
	if c.pipe != nil {
		_ = c.pipe.Conn.Close()
	}
}

// Signal implements Process.
func (c *Local) Signal(sig syscall.Signal) { _ = syscall.Kill(-c.Cmd.Process.Pid, sig) }

// SetPID implements Process.
func (c *Local) SetPID(pid int) {
	if pid > 0 && pid != c.Cmd.Process.Pid {
		c.Peer, _ = os.FindProcess(pid) // nil if it has ended
	}
}

// PID implements Process.
func (c *Local) PID() int {
	if c.Peer != nil {
		return c.Peer.Pid
	}
	return c.Cmd.Process.Pid
}

// Ask implements Process.
func (c *Local) Ask(sig syscall.Signal) {
	if c.Peer == nil || c.Peer.Signal(sig) != nil {
		c.Signal(sig)
	}
	c.Signal(syscall.SIGCONT)
}

// Input implements Process.
func (c *Local) Input(part []byte) error {
	switch {
	case c.stdin == nil:
		return ErrInputClosed
	case len(part) == 0:
		return c.stdin.Close()
	}
	_, err := c.stdin.Write(part)
	return err
}

// Look implements Process.
func (c *Local) Look() (r wire.HaltReport, now bool) {
	pid := c.PID()
	return wire.HaltReport{PID: pid, On: stopped(pid)}, true
}

// Send implements Process. The message is dropped if the queue is full.
func (c *Local) Send(m wire.Message) {
	if m.Start != nil && c.Watched.Load() {
		order := *m.Start
		order.Watched = true
		m.Start = &order
	}
	if line, err := m.Encode(); err == nil {
		c.out.Add(line, wire.History)
	}
}

// Watch implements Process.
func (c *Local) Watch() {
	var messages, writer, streams sync.WaitGroup
	for i, f := range c.files {
		streams.Go(func() { readOutput(f, wire.Target(i), c.to) })
	}
	messages.Go(func() { c.readMessages() })
	writer.Go(func() { c.out.Run(c.pipe.Write) })
	exit := c.wait()
	// Kill the processes that the program has left in its process group. The ID of a process group
	// is not reused while the group has members.
	c.Signal(syscall.SIGKILL)
	// This deadline has passed already, so readMessages ends after the messages that are buffered
	// (DrainReader).
	_ = c.pipe.Conn.SetReadDeadline(exit.At)
	close(c.exited)
	messages.Wait()
	c.ends.Wait()
	c.senders.drop()
	c.Abandon()
	c.out.Close()
	writer.Wait()
	limit := time.Now().Add(Leftover)
	c.to.Ended(exit)
	for _, f := range c.files {
		_ = f.SetReadDeadline(limit)
	}
	streams.Wait()
	c.close()
}

// Abandon closes the socket. The peer then takes its launcher for dead, and leaves its group.
func (c *Local) Abandon() { _ = c.pipe.Conn.Close() }

// wait waits for the end of the process and returns its Exit.
func (c *Local) wait() spec.Exit {
	_ = c.Cmd.Wait() // the process state has the same information
	c.orphans.Ended(c.Cmd.Process.Pid)
	e := spec.Exit{Index: c.Index, PID: c.Cmd.Process.Pid, Code: -1, At: time.Now()}
	if s := c.Cmd.ProcessState; s != nil {
		e.Code = s.ExitCode()
		if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			e.Signal = ws.Signal()
		}
	}
	return e
}

// readMessages passes on the peer's messages. A peer that violates the protocol loses its
// connection, and so takes the launcher for dead.
func (c *Local) readMessages() {
	for {
		m, err := c.pipe.Receive()
		switch {
		// The peer has closed the socket, or its process has ended: then Watch sets a deadline that
		// has passed.
		case errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil:
			c.Abandon()
			c.to.ProtocolError(err)
			return
		}
		if m.Hello != nil {
			c.hello(m, c.senders.last)
			continue
		}
		c.to.Message(m, c.senders.last)
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
func (c *Local) hello(m wire.Message, pid int) {
	word := c.takeWord()
	c.Watched.Store(word != nil) // before the answer to hello
	id := m.Hello.ID
	c.to.Message(m, pid)
	if word == nil {
		return
	}
	c.ends.Go(func() {
		defer word.Close()
		select {
		case <-word.Died():
			c.to.Dying(id)
		case <-c.exited:
		}
	})
}

// takeWord begins to watch the word of the program that says hello. It returns nil if there is none.
func (c *Local) takeWord() *shm.WatchedWord {
	file := c.senders.take()
	if file == nil {
		return nil
	}
	word, err := c.Words.Watch(file)
	if err != nil {
		return nil
	}
	return word
}
