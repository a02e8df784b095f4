package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/cores"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// Serve is launch.ServeHost. doctor checks this host.
func Serve(ctx context.Context, in io.Reader, out io.Writer, signals <-chan os.Signal, doctor func(context.Context) []spec.Check) error {
	// The kernel sends a child its parent-death signal when the thread that started the child ends.
	// So this goroutine keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The launcher may die while the peers print: a broken pipe must not kill this process before
	// the peers have ended.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	a := newHostAgent(in, out)
	a.doctor = doctor
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go a.forwardSignals(ctx, signals)
	_, err := io.WriteString(out, wire.AgentReady+"\n")
	if err == nil {
		name, _ := os.Hostname() // the host name appears in messages only
		err = a.out.Write(wire.Message{Report: wire.Report{Ready: &wire.HostInfo{Protocol: wire.AgentProtocol, Host: name,
			System: runtime.GOOS + "/" + runtime.GOARCH, Cores: cores.Count()}}})
	}
	if err == nil {
		err = a.serve()
	}
	a.end()
	return err
}

// hostAgent starts peers for a launcher on another host. The goroutine of ServeHost owns it,
// except for the fields that mu guards.
type hostAgent struct {
	// in and out are the connection to the launcher: the standard input and output of the agent.
	in       *wire.Reader
	incoming chan incoming // messages from the goroutine of read
	out      wire.Writer
	order    wire.BeginOrder // the launcher's description of the program
	path     string          // path of the program
	probe    *probe          // nil before begin; closed by the first spawn
	work     sync.WaitGroup
	words    shm.WordWatch // of the peers

	looks  <-chan time.Time // when the next look at the peers is due
	doctor func(context.Context) []spec.Check

	// mu guards the fields below: the goroutine of a peer removes the peer when it ends.
	mu    sync.Mutex
	peers map[int]*proc.Local // running peers
	asked syscall.Signal      // the signal on which this process asked all peers to leave
}

// newHostAgent returns an agent that has received nothing yet.
func newHostAgent(in io.Reader, out io.Writer) *hostAgent {
	return &hostAgent{in: wire.NewMessages(in), incoming: make(chan incoming), out: wire.Writer{W: out}, peers: make(map[int]*proc.Local)}
}

// serve carries out the launcher's messages until the launcher has ended. It also returns when no
// message has come for SilencePeriod while no peer is running.
func (h *hostAgent) serve() error {
	looks := time.NewTicker(proc.LookPeriod)
	defer looks.Stop()
	h.looks = looks.C
	done := make(chan struct{})
	// Closing done ends the goroutine of read if serve returns early: read may block on a message
	// that serve does not receive.
	defer close(done)
	go h.read(done)
	for {
		m, err := h.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := h.handle(m); err != nil {
			return err
		}
	}
}

// read passes messages to next until the launcher ends, or until the first message after the channel
// done was closed.
func (h *hostAgent) read(done <-chan struct{}) {
	for {
		m, err := h.in.Next()
		select {
		case h.incoming <- incoming{m, err}:
		case <-done:
			return
		}
		if err != nil {
			return
		}
	}
}

// incoming is a message, or the error that ended the messages.
type incoming struct {
	message wire.Message
	err     error
}

// next returns the next message. The error io.EOF means that the launcher has ended.
func (a *hostAgent) next() (wire.Message, error) {
	silence := time.NewTicker(wire.SilencePeriod)
	defer silence.Stop()
	for {
		select {
		case h := <-a.incoming:
			return h.message, h.err
		case <-a.looks:
			a.lookAll()
		case <-silence.C:
			if a.idle() {
				return wire.Message{}, io.EOF
			}
		}
	}
}

// idle reports whether no peer is running. An agent with peers keeps running when the launcher is
// silent, because it has to report how the peers end.
func (h *hostAgent) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.peers) == 0
}

// handle carries out one message. An error ends the connection.
func (h *hostAgent) handle(m wire.Message) error {
	// Messages about the host.
	switch {
	case m.Begin != nil:
		return h.begin(*m.Begin)
	case len(m.Probe) > 0:
		r := h.probe.dial(m.Probe)
		return h.out.Write(wire.Message{Report: wire.Report{Probed: &r}})
	case m.Doctor:
		ctx, cancel := context.WithTimeout(context.Background(), wire.DoctorPeriod)
		defer cancel()
		checks := h.doctor(ctx)
		return h.out.Write(wire.Message{Report: wire.Report{Findings: &wire.Findings{Checks: checks, Clock: time.Now()}}})
	case m.Ended != nil:
		_ = ctl.WriteEnded(*m.Ended) // errors are ignored, as in runner.recordEnd
		return nil
	case m.Spawn != nil:
		return h.spawn(m.To, *m.Spawn)
	}
	// Messages about a peer. The peer may have ended while the message was in flight.
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.peers[m.To]
	switch {
	case p == nil && m.Ask != nil:
		return h.out.Write(wire.Message{To: m.To, Report: wire.Report{Answer: &wire.AskAnswer{Seq: m.Ask.Seq, Reply: wire.Reply{Error: "the peer has ended"}}}})
	case p == nil && m.Input != nil:
		return h.out.Write(wire.Message{To: m.To, Report: wire.Report{Taken: &wire.InputTaken{Closed: true}}})
	case p == nil: // the peer has ended
	case m.Ask != nil:
		at := ctl.SocketName{Job: h.order.Job, Index: m.To, PID: p.PID()}
		h.work.Go(func() { h.askPeer(m.To, at, *m.Ask) })
	case m.Input != nil:
		h.work.Go(func() { h.giveInput(p, *m.Input) }) // ends with the process
	case m.OfPeer():
		m.To = 0 // only agents need it
		p.Send(m)
	case m.Look:
		r, _ := p.Look()
		p.Halted = r.On
		return h.out.Write(wire.Message{To: m.To, Report: wire.Report{Halt: &r}})
	case m.Signal != nil && m.Signal.Ask:
		p.Ask(m.Signal.Signal)
	case m.Signal != nil:
		p.Signal(m.Signal.Signal)
	}
	return nil
}

// lookAll reports which peers are stopped, or were continued since the last look.
func (h *hostAgent) lookAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, p := range h.peers {
		if r, _ := p.Look(); r.On || p.Halted {
			p.Halted = r.On
			_ = h.out.Write(wire.Message{To: i, Report: wire.Report{Halt: &r}}) // an error means that the launcher is gone
		}
	}
}

// askPeer sends a request to the control socket of a peer, and the answer to the launcher.
func (h *hostAgent) askPeer(index int, at ctl.SocketName, o wire.AskOrder) {
	ctx, cancel := context.WithTimeout(context.Background(), ctl.ScalePeriod)
	defer cancel()
	r, err := ctl.Ask(ctx, at, o.Request)
	if err != nil {
		r = wire.Reply{Error: err.Error()}
	}
	_ = h.out.Write(wire.Message{To: index, Report: wire.Report{Answer: &wire.AskAnswer{Seq: o.Seq, Reply: r}}}) // an error means that the launcher is gone
}

// begin prepares to start peers, and reports success or the cause of the failure to the launcher.
func (h *hostAgent) begin(o wire.BeginOrder) error {
	if o.Protocol != wire.AgentProtocol {
		return fmt.Errorf("launch: the launcher has protocol %d, this elrun has %d: use the same version of elrun on all hosts", o.Protocol, wire.AgentProtocol)
	}
	h.order = o
	err := h.prepare()
	if err == nil {
		h.probe, err = listenProbe()
	}
	if err != nil {
		return h.out.Write(wire.Message{Report: wire.Report{Refused: err.Error()}})
	}
	return h.out.Write(wire.Message{Report: wire.Report{Prepared: &wire.Preparation{Addrs: h.probe.addrs}}})
}

// prepare finds the working folder and the program. Its error messages are for the user who typed
// the command.
func (h *hostAgent) prepare() error {
	if dir := string(h.order.Dir); dir != "" {
		if err := os.Chdir(dir); err != nil {
			return fmt.Errorf("no working folder %s (%w): make it there, or name another by --dir", dir, say.Cause(err))
		}
	}
	// The program is elrun itself, a copy from the launcher, or a program of this host.
	switch {
	case h.order.Program == "":
		return nil
	case h.order.Self:
		self, err := os.Executable()
		h.path = self
		return err
	case h.order.Copy:
		return h.requestProgram()
	}
	path, err := proc.FindProgram(string(h.order.Program))
	if err != nil {
		return fmt.Errorf("%s; --copy copies it there", strings.TrimPrefix(err.Error(), "launch: "))
	}
	h.path = path
	// A program with a path must be the same build on all hosts.
	if h.order.SHA256 == "" {
		return nil
	}
	switch sum, err := proc.HashFile(path); {
	case err != nil:
		return err
	case sum != h.order.SHA256:
		return fmt.Errorf("its %s differs from the one here: copy this one there, or use --copy", h.order.Program)
	}
	return nil
}

// requestProgram asks the launcher for the program, unless the cache has a copy.
func (h *hostAgent) requestProgram() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no folder for copies of programs: %w", err)
	}
	// The hash becomes part of a path, so check that it has the form of a hash.
	all := filepath.Join(cache, "elrun")
	if len(h.order.SHA256) != hex.EncodedLen(sha256.Size) || strings.Trim(h.order.SHA256, "0123456789abcdef") != "" {
		return fmt.Errorf("hash %q of the program: want %d digits of 0-9 and a-f", h.order.SHA256, hex.EncodedLen(sha256.Size))
	}
	// A copy of an earlier job is used again if it is intact.
	dir := filepath.Join(all, h.order.SHA256)
	h.path = filepath.Join(dir, filepath.Base(string(h.order.Program)))
	if sum, err := proc.HashFile(h.path); err == nil && sum == h.order.SHA256 {
		now := time.Now()
		_ = os.Chtimes(dir, now, now) // marks the copy as used, for removeOldCopies
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	removeOldCopies(all, dir)
	if err := h.out.Write(wire.Message{Report: wire.Report{Need: true}}); err != nil {
		return err
	}
	// The copy gets its final name only when it is complete and has the right hash.
	f, err := os.CreateTemp(dir, "copy")
	if err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	defer os.Remove(f.Name()) // fails if the file was renamed
	err = h.readProgram(f)
	if err = cmp.Or(err, f.Chmod(0o700), f.Close()); err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	sum, err := proc.HashFile(f.Name())
	if err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	if sum != h.order.SHA256 {
		return fmt.Errorf("copy the program: the copy has the hash %s, want %s: start the job again", sum, h.order.SHA256)
	}
	return os.Rename(f.Name(), h.path)
}

// readProgram receives the program and writes it to f. After a write error it still receives the
// remaining parts.
func (h *hostAgent) readProgram(f *os.File) error {
	var failed error
	for {
		p, err := h.next()
		switch {
		case err != nil:
			return err
		case p.Part == nil:
			return errors.New("launch: the launcher sent another message in place of a part of the program")
		case len(p.Part.Data) == 0:
			return failed
		}
		// The launcher sends the whole file before it reads an answer, so all parts must be
		// received.
		if failed == nil {
			_, failed = f.Write(p.Part.Data)
		}
	}
}

// copyLife is how long an unused copy of a program is kept.
const copyLife = 30 * 24 * time.Hour

// removeOldCopies removes from the folder all the copies of programs that were not used for
// copyLife. It never removes the copy in the folder keep.
func removeOldCopies(all, keep string) {
	dirs, _ := filepath.Glob(filepath.Join(all, "*")) // no error: the pattern is valid
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && dir != keep && time.Since(info.ModTime()) > copyLife {
			_ = os.RemoveAll(dir)
		}
	}
}

// spawn starts a peer, or reports the cause of the failure to the launcher. The first spawn closes
// the probe, because the hosts test their connections only before it.
func (h *hostAgent) spawn(index int, o wire.SpawnOrder) error {
	h.probe.close()
	cmd := exec.Command(h.path, wire.Convert[string](h.order.Args)...)
	// The program sees the name that the user gave, not the path of the copy on this host.
	cmd.Args[0] = string(h.order.Program)
	cmd.Env = proc.BoundProcessors(append(append(os.Environ(), wire.Convert[string](h.order.Env)...), o.Env...), o.Peers)
	r := &relay{a: h, index: index}
	p, err := proc.StartLocal(index, o.Peers, cmd, o.Input, r, nil)
	if err != nil {
		err = proc.StartError(string(h.order.Program), err)
		return h.out.Write(wire.Message{To: index, Report: wire.Report{Refused: strings.TrimPrefix(err.Error(), "launch: ")}})
	}
	r.p, p.Words = p, &h.words
	h.mu.Lock()
	h.peers[index] = p
	h.mu.Unlock()
	h.work.Go(p.Watch)
	return nil
}

// forwardSignals passes signals to this process on to the peers.
func (h *hostAgent) forwardSignals(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if sig, ok := s.(syscall.Signal); ok {
				h.recordSignal(sig) // before ask: the peer may have it, too, and end at once
				h.each(func(p *proc.Local) { p.Ask(sig) })
			}
		}
	}
}

// recordSignal records a signal that asks all peers to leave.
func (h *hostAgent) recordSignal(sig syscall.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP {
		h.asked = sig
	}
}

// each calls f for every running peer, and holds mu meanwhile.
func (h *hostAgent) each(f func(p *proc.Local)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.peers {
		f(p)
	}
}

// end waits until no peer is left, after the launcher has ended. Unless the peers shall go on
// without a launcher (detach), end closes the peers' sockets, so that they leave, and kills the
// remaining peers after the launcher's grace period.
func (h *hostAgent) end() {
	h.probe.close()
	if !h.order.Detach {
		h.each((*proc.Local).Abandon)
		late := time.AfterFunc(h.order.GraceOrDefault(), func() { h.each(func(p *proc.Local) { p.Signal(syscall.SIGKILL) }) })
		defer late.Stop()
	}
	h.work.Wait()
}

// giveInput gives a peer on this host a part of its input, and reports when the peer has taken it.
func (h *hostAgent) giveInput(p *proc.Local, part wire.InputPart) {
	err := p.Input(part.Data)
	_ = h.out.Write(wire.Message{To: p.Index, Report: wire.Report{Taken: &wire.InputTaken{Closed: err != nil}}}) // an error means that the launcher is gone
}
