package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// agentScript returns the command that finds elrun on a host and starts its agent. It works in any
// login shell of the user, because that shell only runs sh. If copied is not nil, the script runs
// the copy of elrun in the cache. It reads a missing copy from its standard input and renames the
// complete file, so that two launchers that copy at once do not run half a file. The script marks
// the copy as used, so that its agent does not remove it as an old one.
func agentScript(self string, copied *copiedFile) string {
	script := fmt.Sprintf(`p=$(command -v elrun) || p=%s; [ -x "$p" ] || { echo "%snone"; exit 1; }; exec "$p" agent`, quote(self), wire.AgentMark)
	if copied != nil {
		script = fmt.Sprintf(`d=${XDG_CACHE_HOME:-$HOME/.cache}/elrun/%s; p=$d/elrun; if [ ! -x "$p" ]; then umask 077; mkdir -p "$d" && echo "%sneed" && head -c %d > "$p.$$" && chmod 700 "$p.$$" && mv "$p.$$" "$p" || exit 1; fi; touch "$d"; exec "$p" agent`,
			copied.sha256, wire.AgentMark, copied.size)
	}
	return "exec sh -c " + quote(script)
}

// quote quotes s as one word for a shell; csh and fish accept the result as well.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// copiedFile is a file of this host that other hosts get a copy of.
type copiedFile struct {
	path, sha256 string
	size         int64
}

// newCopied hashes a file and reads its size, before it is copied.
func newCopied(path string) (*copiedFile, error) {
	sum, err := proc.HashFile(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &copiedFile{path, sum, info.Size()}, nil
}

// Plan is the part of the connection set-up that is the same for all hosts: it is computed
// once, so that the program is hashed once.
type Plan struct {
	starter starter
	// timeout is Remote.ConnectTimeout. A copy restarts the timer with each write.
	timeout time.Duration
	self    string      // path of this elrun
	copied  *copiedFile // this elrun, to be copied; nil without Remote.Copy
	Begin   wire.BeginOrder
	program string // path of the program, copied if Begin.Copy is set
}

// PlanFor returns the Plan of the options. path is the program on this host, "" if there is none.
func PlanFor(o *spec.Options, path string) (Plan, error) {
	self, err := os.Executable()
	if err != nil {
		return Plan{}, fmt.Errorf("launch: %w", err)
	}
	r := &o.Remote
	p := Plan{starter: starter{strings.Fields(r.SSH), r.Srun}, timeout: r.ConnectTimeout, self: self, program: path,
		Begin: wire.BeginOrder{Protocol: wire.AgentProtocol, Job: o.Job, Program: wire.Bytes(o.Program), Args: wire.Convert[wire.Bytes](o.Args), Env: wire.Convert[wire.Bytes](o.Forward), Dir: wire.Bytes(r.Dir), Copy: r.Copy && !o.Self, Self: o.Self, Detach: r.Detach, Grace: o.Grace}}
	if r.Copy {
		if p.copied, err = newCopied(self); err != nil {
			return Plan{}, fmt.Errorf("launch: %w", err)
		}
	}
	// The hash is checked only for a program with a path: a program that is found in PATH, such as
	// an interpreter, may differ between hosts.
	if o.Program != "" && !o.Self && (r.Copy || path != "" && strings.Contains(o.Program, "/")) {
		if p.Begin.SHA256, err = proc.HashFile(path); err != nil {
			return Plan{}, fmt.Errorf("launch: %w", err)
		}
	}
	return p, nil
}

// command returns the command that starts an agent on a host.
func (p Plan) command(host string) *exec.Cmd {
	if host == "localhost" {
		return exec.Command("sh", "-c", agentScript(p.self, nil))
	}
	return p.starter.command(host, agentScript(p.self, p.copied), p.timeout)
}

// Preview returns what is to be done for each host, without a connection to any.
func (p Plan) Preview(o *spec.Options) (plans []spec.HostPlan) {
	left := o.Peers // 0 for no bound
	for _, h := range o.Remote.Hosts {
		plan := spec.HostPlan{Host: h.Name, Peers: h.Slots, Command: p.command(h.Name).Args, Program: append([]string{o.Program}, o.Args...), Dir: o.Remote.Dir, Env: o.Forward}
		switch {
		case h.Slots == 0:
			plan.Peers = -1
		case o.Peers > 0:
			plan.Peers = min(h.Slots, left)
			left -= plan.Peers
		}
		if p.Begin.Copy {
			plan.Copied = p.program
		}
		plans = append(plans, plan)
	}
	return plans
}

// Connect starts an agent on a host and prepares it to start peers. If ctx ends, the error is its
// cause. Any other error names the host and the cause, and the remedy if the user can do something.
func (h *Host) Connect(ctx context.Context, p Plan) error {
	h.timeout, h.job, h.grace, h.starter = p.timeout, p.Begin.Job, p.Begin.Grace, p.starter
	h.cmd = p.command(h.Name)
	h.stderr = &tailBuffer{}
	// ssh has its own process group, so that Ctrl-C at the terminal reaches only elrun. If elrun
	// dies, ssh sees the end of its input.
	h.cmd.Stderr, h.cmd.SysProcAttr = h.stderr, &syscall.SysProcAttr{Setpgid: true}
	h.cmd.WaitDelay = hangUpPeriod
	var err error
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("host %s: %w%s", h.Name, err, p.starter.remedy(err))
	}
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("host %s: %w%s", h.Name, err, p.starter.remedy(err))
	}
	if err := h.orphans.Start(h.cmd); err != nil {
		return fmt.Errorf("host %s: %w%s", h.Name, err, p.starter.remedy(err))
	}
	h.in = wire.NewMessages(stdout)
	limit := time.AfterFunc(h.timeout, func() { _ = h.cmd.Process.Kill() })
	defer limit.Stop()
	stop := context.AfterFunc(ctx, func() { _ = h.cmd.Process.Kill() })
	defer stop()
	if err := h.greet(p, limit); err != nil {
		_ = h.stdin.Close()
		var told *hostError
		if errors.As(err, &told) {
			h.cutOff() // no peer has been started
		}
		ended := h.wait()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if told != nil {
			return fmt.Errorf("host %s: %s", h.Name, told.text)
		}
		waited := time.Duration(0)
		if !limit.Stop() {
			waited = h.timeout
		}
		return p.starter.failure(h.Name, h.stderr, ended, waited)
	}
	h.out = wire.NewOutbox(nil)
	h.work.Go(func() { h.out.Run(h.writeLine) })
	return nil
}

// hostError is an error of the agent or of the preparation of a host, in words for people. connect
// returns it instead of ssh's own error, which would only say that the connection ended.
type hostError struct{ text string }

// Error implements error.
func (h *hostError) Error() string { return h.text }

// maxGreeting bounds the number of lines before the agent's first line: shells may write
// greetings.
const maxGreeting = 10_000

// greet runs the protocol with the agent until the agent is ready to start peers. It restarts the
// timer limit while a file is being copied.
func (h *Host) greet(p Plan, limit *time.Timer) error {
	// Find or copy elrun, check its version, and describe the job.
	if err := h.findAgent(p, limit); err != nil {
		return err
	}
	first, err := h.in.Next()
	switch {
	case err != nil:
		return err
	// An elrun that writes no Ready message is older than the protocol, or is another program with
	// this name.
	case first.Ready == nil:
		return &hostError{"its elrun does not answer as an agent: install the same version, or use --copy"}
	case first.Ready.Protocol != wire.AgentProtocol:
		return &hostError{fmt.Sprintf("its elrun is of another version (protocol %d, want %d): install the same one, or use --copy", first.Ready.Protocol, wire.AgentProtocol)}
	}
	h.Info = *first.Ready
	w := wire.Writer{W: h.stdin}
	if err := w.Write(wire.Message{Order: wire.Order{Begin: &p.Begin}}); err != nil {
		return err
	}
	// The agent asks for the program if it needs a copy, and finally accepts or refuses.
	for {
		f, err := h.in.Next()
		switch {
		case err != nil:
			return err
		case f.Need:
			if err := h.sendFile(&w, p.program, limit); err != nil {
				return err
			}
		case f.Refused != "":
			return &hostError{wire.ClipNote(f.Refused)}
		case f.Prepared != nil:
			h.addrs = f.Prepared.Addrs
			return nil
		}
	}
}

// findAgent reads the lines before the first message, and sends elrun itself if the host has no
// copy. Shells may write greetings before. These lines lack AgentMark and are skipped; a greeting
// without a line end, such as the title of a terminal, is before AgentMark in its line.
func (h *Host) findAgent(p Plan, limit *time.Timer) error {
	for range maxGreeting {
		line, err := h.in.Line()
		if err != nil {
			return err
		}
		_, word, ok := strings.Cut(string(line), wire.AgentMark)
		switch {
		case !ok: // a shell's greeting
		case word == "ready":
			return nil
		case word == "none":
			return &hostError{"no elrun there in PATH, nor at " + p.self + ": install it, or use --copy"}
		case word == "need" && p.copied != nil:
			f, err := os.Open(p.copied.path)
			if err != nil {
				return &hostError{err.Error()}
			}
			_, err = io.Copy(&resetWriter{h.stdin, limit, h.timeout}, f)
			_ = f.Close()
			if err != nil {
				return err
			}
		}
	}
	return &hostError{"its login shell prints without end: keep .bashrc silent where there is no terminal"}
}

// sendFile sends the program in messages of at most MaxPart bytes, and restarts the timer limit at
// each message.
func (h *Host) sendFile(w *wire.Writer, path string, limit *time.Timer) error {
	f, err := os.Open(path)
	if err != nil {
		return &hostError{err.Error()}
	}
	defer f.Close()
	buf := make([]byte, wire.MaxPart)
	for {
		n, err := f.Read(buf)
		if err != nil && !errors.Is(err, io.EOF) {
			return &hostError{err.Error()}
		}
		// The time limit is for one message: a slow link may take long for the whole program.
		limit.Reset(h.timeout)
		// At the end of the file n is 0, and the empty part tells the agent that the file is
		// complete.
		if err := w.Write(wire.Message{Order: wire.Order{Part: &wire.FilePart{Data: buf[:n]}}}); err != nil || n == 0 {
			return err
		}
	}
}

// resetWriter restarts a timer at each write, so that a slow copy is not taken for a hang.
type resetWriter struct {
	w       io.Writer
	limit   *time.Timer
	timeout time.Duration
}

// Write implements io.Writer.
func (r *resetWriter) Write(b []byte) (int, error) {
	r.limit.Reset(r.timeout)
	return r.w.Write(b)
}

// reachable asks the host to connect to other hosts, and returns the result.
func (h *Host) reachable(others []wire.HostAddrs) (wire.ProbeResult, error) {
	m, err := h.Request(wire.Message{Order: wire.Order{Probe: others}}, func(m wire.Message) bool { return m.Probed != nil })
	if err != nil {
		return wire.ProbeResult{}, err
	}
	return *m.Probed, nil
}

// Request sends a message and returns the first message for which the function answers returns true. It
// must be called before run, which reads all messages. After the timeout it kills ssh.
func (h *Host) Request(m wire.Message, answers func(wire.Message) bool) (wire.Message, error) {
	// A read of the connection has no deadline of its own; it fails when the process ends.
	limit := time.AfterFunc(max(h.timeout, wire.DoctorPeriod), func() { _ = h.cmd.Process.Kill() })
	defer limit.Stop()
	h.send(m)
	for {
		m, err := h.in.Next()
		switch {
		case err != nil:
			return wire.Message{}, h.starter.failure(h.Name, h.stderr, err, 0)
		case answers(m):
			return m, nil
		}
	}
}

// tailBuffer is a writer that keeps the end of a command's standard error: errors come last,
// after banners. It is safe for concurrent use.
type tailBuffer struct {
	// mu guards text: the command writes, and the launcher reads after a failure.
	mu   sync.Mutex
	text []byte
}

// tailSize is the number of bytes that tailBuffer keeps.
const tailSize = 8 << 10

// Write implements io.Writer. It never fails.
func (t *tailBuffer) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(b), nil
}

// String returns the kept text.
func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// last returns the last line that is not empty, without spaces at its ends.
func (t *tailBuffer) last() string {
	said := ""
	for line := range strings.Lines(t.String()) {
		said = cmp.Or(strings.TrimSpace(line), said)
	}
	return said
}
