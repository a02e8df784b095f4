package launch

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
)

// agentMark begins the lines that an agent, or the shell that is to start it, writes before
// the first frame. What else comes before that is the shell's own (a greeting of .bashrc).
const agentMark = "elrun-agent "

// agentReady is the last of these lines.
const agentReady = agentMark + "ready"

// ServeHost is the agent of a launcher on this host: it starts the peers that the launcher
// wants here, whose end of the conversation are in and out, and passes on what they say. It
// returns when the launcher has ended and no peer is left.
//
// The end of in is the launcher's death: the peers leave their group, and those that have not
// ended after a while are killed, unless the launcher was told to detach. A signal is passed
// on to the peers. When the launcher was silent for long a read of in may go on after the
// return.
func ServeHost(ctx context.Context, in io.Reader, out io.Writer, signals <-chan os.Signal) error {
	// The death signal of children comes when the thread ends that started them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The launcher may die while the peers print; they are to end as usual.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	a := newHostAgent(in, out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go a.passOn(ctx, signals)
	_, err := io.WriteString(out, agentReady+"\n")
	if err == nil {
		name, _ := os.Hostname() // only for people
		err = a.out.write(frame{Ready: &hostInfo{Protocol: agentProtocol, Host: name,
			System: runtime.GOOS + "/" + runtime.GOARCH, Cores: cores.Count()}})
	}
	if err == nil {
		err = a.serve()
	}
	a.end()
	return err
}

// hostAgent starts peers for a launcher elsewhere. The goroutine of ServeHost owns it, but for
// what mu guards.
type hostAgent struct {
	in       *frameReader
	incoming chan incoming // what read has read
	out      frameWriter
	order    beginOrder
	path     string // of the program
	probe    *probe // nil before prepare and after the first spawn
	work     sync.WaitGroup

	mu    sync.Mutex
	peers map[int]*local // that run
	asked syscall.Signal // a signal to this process has asked all peers to leave
}

const (
	// beatPeriod is how often a launcher tells its agents that it lives.
	beatPeriod = 10 * time.Second
	// silencePeriod is how long an agent without peers waits for a word of its launcher: the
	// network between them may be gone for good, of which the system says nothing for hours.
	silencePeriod = 6 * beatPeriod
)

// newHostAgent returns an agent that has not been told anything.
func newHostAgent(in io.Reader, out io.Writer) *hostAgent {
	return &hostAgent{in: newFrameReader(in), incoming: make(chan incoming), out: frameWriter{w: out}, peers: make(map[int]*local)}
}

// serve carries out what the launcher says, until it says nothing more: it has ended, or
// nothing has come for long and there is no peer whose end is to be told.
func (a *hostAgent) serve() error {
	done := make(chan struct{})
	defer close(done)
	go a.read(done)
	for {
		f, err := a.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := a.handle(f); err != nil {
			return err
		}
	}
}

// read hands frames to next until the launcher says nothing more, or done is closed and
// another one comes.
func (a *hostAgent) read(done <-chan struct{}) {
	for {
		f, err := a.in.next()
		select {
		case a.incoming <- incoming{f, err}:
		case <-done:
			return
		}
		if err != nil {
			return
		}
	}
}

// incoming is a frame, or why there is none any more.
type incoming struct {
	frame frame
	err   error
}

// next returns the next frame. io.EOF is the launcher's end.
func (a *hostAgent) next() (frame, error) {
	silence := time.NewTicker(silencePeriod)
	defer silence.Stop()
	for {
		select {
		case h := <-a.incoming:
			return h.frame, h.err
		case <-silence.C:
			if a.idle() {
				return frame{}, io.EOF
			}
		}
	}
}

// idle reports whether no peer runs.
func (a *hostAgent) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.peers) == 0
}

// handle carries out one frame. An error ends the conversation.
func (a *hostAgent) handle(f frame) error {
	switch {
	case f.Begin != nil:
		return a.begin(*f.Begin)
	case len(f.Probe) > 0:
		r := a.probe.dial(f.Probe)
		return a.out.write(frame{Probed: &r})
	case f.Doctor:
		ctx, cancel := context.WithTimeout(context.Background(), doctorPeriod)
		defer cancel()
		checks := Doctor(ctx)
		return a.out.write(frame{Findings: &findings{checks, time.Now()}})
	case f.Ended != nil:
		_ = keepEnded(*f.Ended) // as keep does
		return nil
	case f.Spawn != nil:
		return a.spawn(f.Index, *f.Spawn)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.peers[f.Index]
	switch {
	case p == nil && f.Ask != nil:
		return a.out.write(frame{Index: f.Index, Answer: &askAnswer{f.Ask.Seq, reply{Error: "the peer has ended"}}})
	case p == nil: // it has ended meanwhile
	case f.Ask != nil:
		at := socketName{a.order.Job, f.Index, p.pid()}
		a.work.Go(func() { a.consult(f.Index, at, *f.Ask) })
	case f.Message != nil:
		p.send(*f.Message)
	case f.Suspect:
		if pid, halted := p.suspect(); halted {
			return a.out.write(frame{Index: f.Index, Stopped: true, PID: pid})
		}
	case f.Signal != nil && f.Signal.Ask:
		p.ask(f.Signal.Signal)
	case f.Signal != nil:
		p.signal(f.Signal.Signal)
	}
	return nil
}

// consult asks a peer on its control socket, and tells the launcher the answer.
func (a *hostAgent) consult(index int, at socketName, o askOrder) {
	var what request
	err := json.Unmarshal(o.Line, &what)
	var r reply
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), scalePeriod)
		defer cancel()
		r, err = ask(ctx, at, what)
	}
	if err != nil {
		r = reply{Error: err.Error()}
	}
	_ = a.out.write(frame{Index: index, Answer: &askAnswer{o.Seq, r}}) // the launcher may be gone
}

// begin gets ready to start peers, and tells the launcher that it is, or why not.
func (a *hostAgent) begin(o beginOrder) error {
	if o.Protocol != agentProtocol {
		return fmt.Errorf("%w: protocol %d, this elrun has %d", errFrame, o.Protocol, agentProtocol)
	}
	a.order = o
	err := a.prepare()
	if err == nil {
		a.probe, err = listenProbe()
	}
	if err != nil {
		return a.out.write(frame{Refused: err.Error()})
	}
	return a.out.write(frame{Prepared: &preparation{Addrs: a.probe.addrs}})
}

// prepare finds the working folder and the program. Its errors are for the user who typed the
// command.
func (a *hostAgent) prepare() error {
	if dir := a.order.Dir; dir != "" {
		if err := os.Chdir(dir); err != nil {
			return fmt.Errorf("no working folder %s (%w): make it there, or name another by --dir", dir, cause(err))
		}
	}
	switch {
	case a.order.Program == "":
		return nil
	case a.order.Self:
		self, err := os.Executable()
		a.path = self
		return err
	case a.order.Copy:
		return a.fetch()
	}
	path, err := findProgram(a.order.Program)
	if err != nil {
		return fmt.Errorf("%s; --copy copies it there", strings.TrimPrefix(err.Error(), "launch: "))
	}
	a.path = path
	if a.order.SHA256 == "" {
		return nil
	}
	switch sum, err := hashFile(path); {
	case err != nil:
		return err
	case sum != a.order.SHA256:
		return fmt.Errorf("its %s is another build than the one here: copy that there, or use --copy", a.order.Program)
	}
	return nil
}

// fetch has the launcher send the program, unless it did so before.
func (a *hostAgent) fetch() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no folder for copies of programs: %w", err)
	}
	all := filepath.Join(cache, "elrun")
	if len(a.order.SHA256) != hex.EncodedLen(sha256.Size) || strings.Trim(a.order.SHA256, "0123456789abcdef") != "" {
		return fmt.Errorf("hash %q of a program", a.order.SHA256)
	}
	dir := filepath.Join(all, a.order.SHA256)
	a.path = filepath.Join(dir, filepath.Base(a.order.Program))
	if sum, err := hashFile(a.path); err == nil && sum == a.order.SHA256 {
		now := time.Now()
		_ = os.Chtimes(dir, now, now) // it is in use
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	sweep(all, dir)
	if err := a.out.write(frame{Need: true}); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "copy")
	if err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	defer os.Remove(f.Name()) // unless it was renamed
	err = a.receive(f)
	if err = cmp.Or(err, f.Chmod(0o700), f.Close()); err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	if sum, err := hashFile(f.Name()); err != nil || sum != a.order.SHA256 {
		return fmt.Errorf("copy the program: it has the hash %s, want %s (%v)", sum, a.order.SHA256, err)
	}
	return os.Rename(f.Name(), a.path)
}

// receive writes the program to f. After an error it reads on to the end of it.
func (a *hostAgent) receive(f *os.File) error {
	var failed error
	for {
		p, err := a.next()
		switch {
		case err != nil:
			return err
		case p.Part == nil:
			return fmt.Errorf("%w: no part of the program", errFrame)
		case len(p.Part.Data) == 0:
			return failed
		}
		if failed == nil {
			_, failed = f.Write(p.Part.Data)
		}
	}
}

// copyLife is how long a copied program that nobody starts any more is kept.
const copyLife = 30 * 24 * time.Hour

// sweep removes copies of programs that were not used for long.
func sweep(all, keep string) {
	dirs, _ := filepath.Glob(filepath.Join(all, "*")) // the pattern is valid
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && dir != keep && time.Since(info.ModTime()) > copyLife {
			_ = os.RemoveAll(dir)
		}
	}
}

// hashFile returns the SHA-256 of a file in hexadecimal digits.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// spawn starts a peer, or tells the launcher why it cannot.
func (a *hostAgent) spawn(index int, o spawnOrder) error {
	a.probe.close()
	cmd := exec.Command(a.path, a.order.Args...)
	cmd.Args[0] = a.order.Program
	cmd.Env = boundProcessors(append(append(os.Environ(), a.order.Env...), o.Env...), o.Peers)
	r := &relay{a: a, index: index}
	p, err := startLocal(index, cmd, r, nil)
	if err != nil {
		err = startError(a.order.Program, err)
		return a.out.write(frame{Index: index, Refused: strings.TrimPrefix(err.Error(), "launch: ")})
	}
	r.p = p
	a.mu.Lock()
	a.peers[index] = p
	a.mu.Unlock()
	a.work.Go(p.watch)
	return nil
}

// relay is the receiver of a peer of an agent: it writes frames. That the launcher is gone
// does not matter to it.
type relay struct {
	a     *hostAgent
	index int
	p     *local // set before it is watched
}

// output implements receiver.
func (r *relay) output(t target, part []byte) {
	if len(part) > 0 {
		_ = r.a.out.write(frame{Index: r.index, Output: &outputPart{To: t, Data: part}})
	}
}

// outputEnd implements receiver.
func (r *relay) outputEnd(t target) {
	_ = r.a.out.write(frame{Index: r.index, Output: &outputPart{To: t, End: true}})
}

// message implements receiver.
func (r *relay) message(m message, pid int) {
	if m.Hello != nil {
		r.a.mu.Lock()
		r.p.met(pid)
		r.a.mu.Unlock()
	}
	_ = r.a.out.write(frame{Index: r.index, Message: &m, PID: pid})
}

// mistake implements receiver.
func (r *relay) mistake(err error) {
	_ = r.a.out.write(frame{Index: r.index, Mistake: err.Error()})
}

// halted implements receiver: a local process says it at once.
func (r *relay) halted(int) {}

// ended implements receiver.
func (r *relay) ended(e Exit) {
	r.a.mu.Lock()
	if r.a.peers[r.index] == r.p {
		delete(r.a.peers, r.index) // its process group's number may come to mean another
	}
	e.PID, e.by = r.p.pid(), r.a.asked
	r.a.mu.Unlock()
	_ = r.a.out.write(frame{Index: r.index, Exit: e.report()})
}

// passOn passes signals to this process on to the peers.
func (a *hostAgent) passOn(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if sig, ok := s.(syscall.Signal); ok {
				a.note(sig) // first: a peer may have got it, too, and end at once
				a.each(func(p *local) { p.ask(sig) })
			}
		}
	}
}

// note notes that a signal has asked all peers to leave.
func (a *hostAgent) note(sig syscall.Signal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP {
		a.asked = sig
	}
}

// each calls f for each peer that runs.
func (a *hostAgent) each(f func(p *local)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.peers {
		f(p)
	}
}

// end waits until no peer is left. The launcher is gone, which the peers learn, unless they
// shall go on without it.
func (a *hostAgent) end() {
	a.probe.close()
	if !a.order.Detach {
		a.each((*local).abandon)
		late := time.AfterFunc(defaultGrace, func() { a.each(func(p *local) { p.signal(syscall.SIGKILL) }) })
		defer late.Stop()
	}
	a.work.Wait()
}

// token returns a word that tells the probe of a host from whatever else listens at one of its
// addresses.
func token() string { return rand.Text() }
