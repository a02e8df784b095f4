package hosts

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

	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// Host is a host whose peers are started by an agent: an elrun process on that host. ssh or
// srun carries the messages between the launcher and the agent. The methods, in the order in which
// they are called:
//
//	Connect   starts ssh, and through it the agent, which prepares itself
//	Spawn     orders the agent to start a peer; Run passes on its messages and output
//	beat      sends the launcher's heartbeat
//	hangUp    ends the agent, and so its peers
//
// No method blocks while the agent is slow to read, because messages go into the outbox.
type Host struct {
	spec.Host
	job   string
	grace time.Duration // Options.Grace
	// cmd is ssh or srun. Its standard input and output carry the messages.
	cmd     *exec.Cmd
	starter starter
	timeout time.Duration // for the connection, without the time to copy a program
	orphans *proc.ChildReaper
	stdin   io.WriteCloser
	in      *wire.Reader
	// stderr keeps the last output of cmd on its standard error, for messages about a failed or
	// lost connection.
	stderr *tailBuffer
	// out queues the messages to the agent, so that a slow connection does not stop the launcher.
	out   *wire.Outbox
	work  sync.WaitGroup // waits for the goroutines of the writer and of run
	Info  wire.HostInfo
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
func (h *Host) writeLine(line []byte) error {
	_, err := h.stdin.Write(line)
	return err
}

// send queues a message for the writer.
func (h *Host) send(m wire.Message) {
	if line, err := wire.Encode(m); err == nil {
		h.out.Add(line, wire.Result)
	}
}

// NewHost returns a host without a connection. orphans may be nil.
func NewHost(h spec.Host, orphans *proc.ChildReaper) *Host {
	return &Host{Host: h, orphans: orphans, peers: make(map[int]*remote), ended: make(chan struct{})}
}

// beat sends a heartbeat to the agent.
func (h *Host) beat() {
	if line, err := wire.Encode(wire.Message{Order: wire.Order{Beat: true}}); err == nil {
		h.out.Add(line, wire.Transient)
	}
}

// Run starts a goroutine that handles the messages of the agent until the agent ends. It calls tell
// with lines for people. Once the agent has ended, all peers of the host count as lost, although
// they may run on for a short time.
func (h *Host) Run(tell func(string)) {
	h.mu.Lock()
	h.running = true
	h.mu.Unlock()
	h.work.Go(func() {
		var err error
		for err == nil {
			var m wire.Message
			if m, err = h.in.Next(); err == nil {
				h.handle(m)
			}
		}
		h.lost(tell, err)
		close(h.ended)
	})
}

// handle handles one message.
func (h *Host) handle(m wire.Message) {
	h.mu.Lock()
	p := h.peers[m.To]
	if p != nil && m.PID > 0 {
		p.processID = m.PID
	}
	h.mu.Unlock()
	// Drop a message about a peer that has ended or was never started.
	if p == nil {
		return
	}
	switch {
	case m.OfPeer():
		if m.Hello != nil {
			p.serve()
		}
		// The argument pid is 0, because processID already has the process ID from the message.
		p.to.Message(m, 0)
	case m.Output != nil && !m.Output.End:
		p.to.Output(m.Output.To, m.Output.Data)
	case m.Output != nil:
		p.endOutput(m.Output.To)
	case m.Mistake != "":
		p.to.ProtocolError(errors.New(wire.ClipNote(m.Mistake)))
	case m.Answer != nil:
		p.answered(*m.Answer)
	case m.Taken != nil:
		select {
		case p.taken <- *m.Taken:
		default: // no part was sent
		}
	case m.Halt != nil:
		p.to.Halted(*m.Halt)
	case m.Dying != "":
		p.to.Dying(m.Dying)
	case m.Remains != nil:
		p.to.Remains(*m.Remains)
	case m.Exit != nil:
		p.exit(m.Exit.Exit(p.index))
	case m.Refused != "":
		p.to.ProtocolError(errors.New(wire.ClipNote(m.Refused)))
		p.abort(spec.Exit{Index: p.index, Code: StatusNotStarted, At: time.Now()})
	}
	// After the last message of a peer (its exit or the end of an output stream) Watch returns.
	if p.isDone() {
		h.mu.Lock()
		delete(h.peers, p.index)
		h.mu.Unlock()
		close(p.done)
	}
}

// StatusNotStarted is the exit status for a program that could not be started, as in shells.
const StatusNotStarted = 126

// lost handles the end of a host's connection: its peers count as lost, though they may run on.
func (h *Host) lost(tell func(string), why error) {
	if !errors.Is(why, io.EOF) {
		_ = h.cmd.Process.Kill() // no message can be read after an invalid one
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
		tell(fmt.Sprintf("host %s: the connection to it was lost (%s), so its peers leave: %s", h.Name, wire.ClipNote(why.Error()), say.ListPeers(indicesOf(left))))
	}
	for _, p := range left {
		p.abort(spec.Exit{Index: p.index, PID: p.PID(), Code: -1, Lost: true, At: time.Now()})
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
func (h *Host) wait() error {
	err := h.cmd.Wait()
	h.orphans.Ended(h.cmd.Process.Pid)
	return err
}

// hangUp ends the agent, by closing its standard input, and waits for the end of cmd.
func (h *Host) hangUp() {
	h.mu.Lock()
	h.quiet = true
	running := h.running
	h.mu.Unlock()
	late := time.AfterFunc(hangUpPeriod, h.cutOff)
	defer late.Stop()
	h.out.Close()
	_ = h.stdin.Close()
	h.work.Wait()
	if !running {
		_ = h.wait() // the error is ignored, because the host is not used any more
	}
}

// cutOff ends the connection at once.
func (h *Host) cutOff() { _ = h.cmd.Process.Kill() }

// cutOffSoon ends the connection after hangUpPeriod if the agent, which was told to kill its
// peers, has not ended by then.
func (h *Host) cutOffSoon() {
	late := time.AfterFunc(hangUpPeriod, h.cutOff)
	go func() { // ends with run
		<-h.ended
		late.Stop()
	}()
}

// LostNow reports whether the connection has ended.
func (h *Host) LostNow() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// Spawn orders the agent to start a peer. If the connection has ended, the peer counts as lost.
func (h *Host) Spawn(index int, o wire.SpawnOrder, to proc.Receiver) *remote {
	p := &remote{index: index, h: h, to: to, done: make(chan struct{}), taken: make(chan wire.InputTaken, 1)}
	h.mu.Lock()
	gone := h.gone
	if !gone {
		h.peers[index] = p
	}
	h.mu.Unlock()
	if gone {
		go func() { // the caller reads the notices, so it must not block on them
			p.abort(spec.Exit{Index: index, Code: -1, Lost: true, At: time.Now()})
			close(p.done)
		}()
		return p
	}
	h.send(wire.Message{To: index, Order: wire.Order{Spawn: &o}})
	return p
}

// remote is a peer's process on another host.
type remote struct {
	index     int
	h         *Host
	to        proc.Receiver
	processID int           // guarded by h.mu; 0 if unknown
	done      chan struct{} // closed when no more messages come from the process
	// taken has capacity 1: input waits for each report before it sends another part.
	taken chan wire.InputTaken

	// Used only by the goroutine that reads from the host:
	exited  bool
	ended   [2]bool      // ended output streams
	control *ctl.Control // nil before hello, or without a socket

	asking sync.Mutex              // guards the fields below
	seq    int                     // sequence number of the latest request
	asked  map[int]chan wire.Reply // requests without an answer, by sequence number
}

// serve opens a control socket on this host for the peer, so that elrun status and other commands
// see the peer here. An error is ignored: for example, the peer's own socket may be visible on this
// host.
func (r *remote) serve() {
	if r.control == nil {
		r.control, _ = ctl.Serve(ctl.SocketName{Job: r.h.job, Index: r.index, PID: r.PID()}, r)
	}
}

// Answer implements ctl.Responder. It forwards the request to the peer and waits for its answer.
func (p *remote) Answer(ctx context.Context, what wire.Request) (wire.Reply, error) {
	// The server of the socket calls end after this answer, and end asks the peer to leave. So the
	// request itself is not forwarded.
	if what.Request == "stop" {
		return wire.Reply{Stopping: true, Grace: p.h.grace}, nil
	}
	answer := make(chan wire.Reply, 1)
	p.asking.Lock()
	p.seq++
	seq := p.seq
	if p.asked == nil {
		p.asked = make(map[int]chan wire.Reply)
	}
	p.asked[seq] = answer
	p.asking.Unlock()
	// After a timeout a late answer finds no entry and is dropped.
	defer func() {
		p.asking.Lock()
		defer p.asking.Unlock()
		delete(p.asked, seq)
	}()
	p.h.send(wire.Message{To: p.index, Order: wire.Order{Ask: &wire.AskOrder{Seq: seq, Request: what}}})
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return wire.Reply{}, fmt.Errorf("host %s does not answer", p.h.Name)
	}
}

// End implements ctl.Responder.
func (r *remote) End() { r.Ask(syscall.SIGTERM) }

// answered passes an answer to the request that waits for it.
func (r *remote) answered(a wire.AskAnswer) {
	r.asking.Lock()
	defer r.asking.Unlock()
	if answer := r.asked[a.Seq]; answer != nil {
		answer <- a.Reply
		delete(r.asked, a.Seq)
	}
}

// isDone reports whether no more messages come from the process.
func (r *remote) isDone() bool { return r.exited && r.ended[wire.ToStdout] && r.ended[wire.ToStderr] }

// exit handles the end of the process.
func (r *remote) exit(e spec.Exit) {
	r.exited = true
	if r.control != nil {
		_ = r.control.Close() // waiting requests get no answer
	}
	r.to.Ended(e)
}

// endOutput reports the end of an output stream, once.
func (r *remote) endOutput(t wire.Target) {
	if !r.ended[t] {
		r.ended[t] = true
		r.to.OutputEnd(t)
	}
}

// abort reports to the receiver each end that is not reported yet: of the process, with e as its
// Exit, and of its output streams.
func (r *remote) abort(e spec.Exit) {
	if !r.exited {
		r.exit(e)
	}
	r.endOutput(wire.ToStdout)
	r.endOutput(wire.ToStderr)
}

// Watch implements proc.Process.
func (r *remote) Watch() { <-r.done }

// Send implements proc.Process.
func (r *remote) Send(m wire.Message) {
	m.To = r.index
	r.h.send(m)
}

// Signal implements proc.Process.
func (r *remote) Signal(sig syscall.Signal) {
	r.h.send(wire.Message{To: r.index, Order: wire.Order{Signal: &wire.SignalOrder{Signal: sig}}})
}

// Ask implements proc.Process.
func (r *remote) Ask(sig syscall.Signal) {
	r.h.send(wire.Message{To: r.index, Order: wire.Order{Signal: &wire.SignalOrder{Signal: sig, Ask: true}}})
}

// Input implements proc.Process.
func (p *remote) Input(part []byte) error {
	p.h.send(wire.Message{To: p.index, Order: wire.Order{Input: &wire.InputPart{Data: part}}})
	select {
	case r := <-p.taken:
		if !r.Closed {
			return nil
		}
	case <-p.done:
	}
	return proc.ErrInputClosed
}

// SetPID implements proc.Process. It does nothing: the agent keeps the process ID.
func (r *remote) SetPID(int) {}

// PID implements proc.Process.
func (r *remote) PID() int {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	return r.processID
}

// Look implements proc.Process.
func (p *remote) Look() (r wire.HaltReport, now bool) {
	p.h.send(wire.Message{To: p.index, Order: wire.Order{Look: true}})
	return wire.HaltReport{}, false
}
