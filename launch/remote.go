package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// remoteHost is a host whose peers are started by an agent: an elrun process on that host. ssh or
// srun carries the frames between the launcher and the agent. The methods, in the order in which
// they are called:
//
//	connect   starts ssh, and through it the agent, which prepares itself
//	spawn     orders the agent to start a peer; run passes on its messages and output
//	beat      sends the launcher's heartbeat
//	hangUp    ends the agent, and so its peers
//
// No method blocks while the agent is slow to read, because frames go into the outbox.
type remoteHost struct {
	Host
	job   string
	grace time.Duration // Options.Grace
	// cmd is ssh or srun. Its standard input and output carry the frames.
	cmd     *exec.Cmd
	starter starter
	timeout time.Duration // for the connection, without the time to copy a program
	orphans *childReaper
	stdin   io.WriteCloser
	in      *frameReader
	// stderr keeps the last output of cmd on its standard error, for messages about a failed or
	// lost connection.
	stderr *tailBuffer
	// out queues the frames to the agent, so that a slow connection does not stop the launcher.
	out   *outbox
	work  sync.WaitGroup // waits for the goroutines of the writer and of run
	info  hostInfo
	addrs []string      // addresses of the probe on this host
	ended chan struct{} // closed when run has ended

	// mu guards the fields below, and processID of the peers.
	mu      sync.Mutex
	peers   map[int]*remote // running peers, by index
	running bool            // run has been called
	gone    bool            // the connection has ended
	quiet   bool            // the end of the connection is expected and not reported
}

const (
	// hangUpPeriod is the time limit for cmd to end after the launcher has told the agent to end.
	hangUpPeriod = 2 * time.Second
)

// writeLine writes a line to the agent.
func (h *remoteHost) writeLine(line []byte) error {
	_, err := h.stdin.Write(line)
	return err
}

// send queues a frame for the writer.
func (h *remoteHost) send(f frame) {
	if line, err := encodeFrame(f); err == nil {
		h.out.add(line, result)
	}
}

// newRemoteHost returns a host without a connection. orphans may be nil.
func newRemoteHost(h Host, orphans *childReaper) *remoteHost {
	return &remoteHost{Host: h, orphans: orphans, peers: make(map[int]*remote), ended: make(chan struct{})}
}

// beat sends a heartbeat to the agent.
func (h *remoteHost) beat() {
	if line, err := encodeFrame(frame{order: order{Beat: true}}); err == nil {
		h.out.add(line, transient)
	}
}

// run starts a goroutine that handles the frames of the agent until the agent ends. It calls say
// with lines for people. Once the agent has ended, all peers of the host count as lost, although
// they may run on for a short time.
func (h *remoteHost) run(say func(string)) {
	h.mu.Lock()
	h.running = true
	h.mu.Unlock()
	h.work.Go(func() {
		var err error
		for err == nil {
			var f frame
			if f, err = h.in.next(); err == nil {
				h.handle(f)
			}
		}
		h.lost(say, err)
		close(h.ended)
	})
}

// handle handles one frame.
func (h *remoteHost) handle(f frame) {
	h.mu.Lock()
	p := h.peers[f.Index]
	if p != nil && f.PID > 0 {
		p.processID = f.PID
	}
	h.mu.Unlock()
	// Drop a frame about a peer that has ended or was never started.
	if p == nil {
		return
	}
	switch {
	case f.Message != nil:
		if f.Message.Hello != nil {
			p.serve()
		}
		// The argument pid is 0, because processID already has the process ID from the frame.
		p.to.message(*f.Message, 0)
	case f.Output != nil && !f.Output.End:
		p.to.output(f.Output.To, f.Output.Data)
	case f.Output != nil:
		p.endOutput(f.Output.To)
	case f.Mistake != "":
		p.to.protocolError(errors.New(clipNote(f.Mistake)))
	case f.Answer != nil:
		p.answered(*f.Answer)
	case f.Taken != nil:
		select {
		case p.taken <- *f.Taken:
		default: // no part was sent
		}
	case f.Halt != nil:
		p.to.halted(*f.Halt)
	case f.Dying != "":
		p.to.dying(f.Dying)
	case f.Exit != nil:
		p.exit(f.Exit.exit(p.index))
	case f.Refused != "":
		p.to.protocolError(errors.New(clipNote(f.Refused)))
		p.abort(Exit{Index: p.index, Code: statusNotStarted, at: time.Now()})
	}
	// After the last frame of a peer (its exit or the end of an output stream) watch returns.
	if p.isDone() {
		h.mu.Lock()
		delete(h.peers, p.index)
		h.mu.Unlock()
		close(p.done)
	}
}

// statusNotStarted is the exit status for a program that could not be started, as in shells.
const statusNotStarted = 126

// lost handles the end of a host's connection: its peers count as lost, though they may run on.
func (h *remoteHost) lost(say func(string), why error) {
	if !errors.Is(why, io.EOF) {
		_ = h.cmd.Process.Kill() // no frame can be read after an invalid one
	}
	ended := h.wait()
	h.mu.Lock()
	h.gone = true
	left := slices.Collect(maps.Values(h.peers))
	clear(h.peers)
	quiet := h.quiet
	h.mu.Unlock()
	if len(left) > 0 && !quiet {
		if errors.Is(why, io.EOF) {
			why = errors.New(cmp.Or(h.stderr.last(), fmt.Sprint(ended)))
		}
		say(fmt.Sprintf("host %s: the connection to it was lost (%s), so its peers leave: %s", h.Name, clipNote(why.Error()), listPeers(indicesOf(left))))
	}
	for _, p := range left {
		p.abort(Exit{Index: p.index, PID: p.pid(), Code: -1, Lost: true, at: time.Now()})
		close(p.done)
	}
}

// indicesOf returns the indices of peers in ascending order, for messages.
func indicesOf(peers []*remote) []int {
	var out []int
	for _, p := range peers {
		out = append(out, p.index)
	}
	slices.Sort(out)
	return out
}

// wait waits for the end of cmd and returns its error.
func (h *remoteHost) wait() error {
	err := h.cmd.Wait()
	h.orphans.ended(h.cmd.Process.Pid)
	return err
}

// hangUp ends the agent, by closing its standard input, and waits for the end of cmd.
func (h *remoteHost) hangUp() {
	h.mu.Lock()
	h.quiet = true
	running := h.running
	h.mu.Unlock()
	late := time.AfterFunc(hangUpPeriod, h.cutOff)
	defer late.Stop()
	h.out.close()
	_ = h.stdin.Close()
	h.work.Wait()
	if !running {
		_ = h.wait() // the error is ignored, because the host is not used any more
	}
}

// cutOff ends the connection at once.
func (h *remoteHost) cutOff() { _ = h.cmd.Process.Kill() }

// cutOffSoon ends the connection after hangUpPeriod if the agent, which was told to kill its
// peers, has not ended by then.
func (h *remoteHost) cutOffSoon() {
	late := time.AfterFunc(hangUpPeriod, h.cutOff)
	go func() { // ends with run
		<-h.ended
		late.Stop()
	}()
}

// lostNow reports whether the connection has ended.
func (h *remoteHost) lostNow() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// spawn orders the agent to start a peer. If the connection has ended, the peer counts as lost.
func (h *remoteHost) spawn(index int, o spawnOrder, to receiver) *remote {
	p := &remote{index: index, h: h, to: to, done: make(chan struct{}), taken: make(chan inputTaken, 1)}
	h.mu.Lock()
	gone := h.gone
	if !gone {
		h.peers[index] = p
	}
	h.mu.Unlock()
	if gone {
		go func() { // the caller reads the notices, so it must not block on them
			p.abort(Exit{Index: index, Code: -1, Lost: true, at: time.Now()})
			close(p.done)
		}()
		return p
	}
	h.send(frame{Index: index, order: order{Spawn: &o}})
	return p
}

// remote is a peer's process on another host.
type remote struct {
	index     int
	h         *remoteHost
	to        receiver
	processID int           // guarded by h.mu; 0 if unknown
	done      chan struct{} // closed when no more frames come from the process
	// taken has capacity 1: input waits for each report before it sends another part.
	taken chan inputTaken

	// Used only by the goroutine that reads from the host:
	exited  bool
	ended   [2]bool  // ended output streams
	control *control // nil before hello, or without a socket

	asking sync.Mutex         // guards the fields below
	seq    int                // sequence number of the latest request
	asked  map[int]chan reply // requests without an answer, by sequence number
}

// serve opens a control socket on this host for the peer, so that elrun status and other commands
// see the peer here. An error is ignored: for example, the peer's own socket may be visible on this
// host.
func (p *remote) serve() {
	if p.control == nil {
		p.control, _ = serveControl(socketName{p.h.job, p.index, p.pid()}, p)
	}
}

// answer implements responder. It forwards the request to the peer and waits for its answer.
func (p *remote) answer(ctx context.Context, line []byte) reply {
	what, err := decodeRequest(line)
	switch {
	case err != nil:
		return reply{Error: err.Error()}
	// The server of the socket calls end after this answer, and end asks the peer to leave. So the
	// request itself is not forwarded.
	case what.Request == "stop":
		return reply{Stopping: true, Grace: p.h.grace}
	}
	answer := make(chan reply, 1)
	p.asking.Lock()
	p.seq++
	seq := p.seq
	if p.asked == nil {
		p.asked = make(map[int]chan reply)
	}
	p.asked[seq] = answer
	p.asking.Unlock()
	// After a timeout a late answer finds no entry and is dropped.
	defer func() {
		p.asking.Lock()
		defer p.asking.Unlock()
		delete(p.asked, seq)
	}()
	p.h.send(frame{Index: p.index, order: order{Ask: &askOrder{seq, line}}})
	select {
	case r := <-answer:
		return r
	case <-ctx.Done():
		return reply{Error: fmt.Sprintf("host %s does not answer", p.h.Name)}
	}
}

// end implements responder.
func (p *remote) end() { p.ask(syscall.SIGTERM) }

// answered passes an answer to the request that waits for it.
func (p *remote) answered(a askAnswer) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if answer := p.asked[a.Seq]; answer != nil {
		answer <- a.Reply
		delete(p.asked, a.Seq)
	}
}

// isDone reports whether no more frames come from the process.
func (p *remote) isDone() bool { return p.exited && p.ended[toStdout] && p.ended[toStderr] }

// exit handles the end of the process.
func (p *remote) exit(e Exit) {
	p.exited = true
	if p.control != nil {
		_ = p.control.Close() // waiting requests get no answer
	}
	p.to.ended(e)
}

// endOutput reports the end of an output stream, once.
func (p *remote) endOutput(t target) {
	if !p.ended[t] {
		p.ended[t] = true
		p.to.outputEnd(t)
	}
}

// abort reports to the receiver each end that is not reported yet: of the process, with e as its
// Exit, and of its output streams.
func (p *remote) abort(e Exit) {
	if !p.exited {
		p.exit(e)
	}
	p.endOutput(toStdout)
	p.endOutput(toStderr)
}

// watch implements process.
func (p *remote) watch() { <-p.done }

// send implements process.
func (p *remote) send(m message) { p.h.send(frame{Index: p.index, Message: &m}) }

// signal implements process.
func (p *remote) signal(sig syscall.Signal) {
	p.h.send(frame{Index: p.index, order: order{Signal: &signalOrder{Signal: sig}}})
}

// ask implements process.
func (p *remote) ask(sig syscall.Signal) {
	p.h.send(frame{Index: p.index, order: order{Signal: &signalOrder{Signal: sig, Ask: true}}})
}

// input implements process.
func (p *remote) input(part []byte) error {
	p.h.send(frame{Index: p.index, order: order{Input: &inputPart{part}}})
	select {
	case r := <-p.taken:
		if !r.Closed {
			return nil
		}
	case <-p.done:
	}
	return errInputClosed
}

// setPID implements process. It does nothing: the agent keeps the process ID.
func (p *remote) setPID(int) {}

// pid implements process.
func (p *remote) pid() int {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	return p.processID
}

// look implements process.
func (p *remote) look() (r haltReport, now bool) {
	p.h.send(frame{Index: p.index, order: order{Look: true}})
	return haltReport{}, false
}
