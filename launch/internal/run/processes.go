package run

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/launch/internal/hosts"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// processes starts the processes of a launcher, and has the running ones: the peers of the job, and
// the services and tasks of a Program (nodes). The launcher's loop owns it. Each process has a
// goroutine that sends the messages and the end of the process to the loop, as notices.
type processes struct {
	o    *spec.Options // the options of the launcher; read only
	path string        // path of the program
	// console gets the output of all processes, with a prefix for each.
	console *say.Console
	hosts   *hosts.List       // nil if all processes run on this host
	orphans *proc.ChildReaper // nil if this process gets no orphans
	words   shm.WordWatch

	peers   map[int]*child // running peers, by local index
	nodes   map[int]*child // running services and tasks, by index from MaxPeers on
	notices chan notice    // without a buffer: the loop reads it until all processes have ended
	work    sync.WaitGroup // the goroutines that watch processes

	suspended bool         // the processes were stopped together with this one
	logged    map[int]bool // logs that have been opened, by index of the process
	input     spec.Input   // for the processes that are started now; zero after giveInput
}

// newProcesses returns the processes of this launcher, before the first process is started. path is
// the path of the program.
func newProcesses(o *spec.Options, path string, c *say.Console) *processes {
	return &processes{o: o, path: path, console: c, peers: make(map[int]*child), nodes: make(map[int]*child),
		notices: make(chan notice), logged: make(map[int]bool), input: o.Input}
}

// start starts a process and the goroutine that watches it, on host h, or on this host if h is nil.
// n is the number of peers, among which the processors are divided. name appears in messages and in
// the name of the log. first is an event about the start for the event log, or nil.
func (p *processes) start(env wire.Environment, n int, h *hosts.Host, name string, first []byte) (*child, error) {
	index := env.Index
	log, err := openLog(p.o.Output.LogDir, name, p.logged[index])
	if err != nil {
		return nil, fmt.Errorf("launch: log of peer %s: %w", name, err)
	}
	p.logged[index] = true
	host := "" // this host
	if h != nil {
		host = h.Name
	}
	f := newFeed(index, p.o.Output.Prefix(name, host), p.console, p.notices, log)
	c := &child{index: index, begun: time.Now(), words: f.words}
	// A remote host reports a failed start later, as an exit.
	if h != nil {
		env.Site = cmp.Or(h.Site, env.Site)
		c.host, c.Process = h.Name, h.Spawn(index, wire.SpawnOrder{Env: env.List(), Peers: p.hosts.Share(h, n), Input: p.input.GoesTo(index)}, f)
	} else if c.Process, err = p.startHere(env, n, f); err != nil {
		f.close()
		return nil, err
	}
	if first != nil {
		f.event(first)
	}
	// The log stays open until the last output has been read.
	p.work.Go(func() {
		c.Watch()
		f.close()
	})
	if index < spec.MaxPeers {
		p.peers[index] = c
	} else {
		p.nodes[index] = c
	}
	return c, nil
}

// startPeer starts the process of a peer, one of n peers, on the host that has a slot for it. first
// has the same meaning as for start.
func (p *processes) startPeer(env wire.Environment, n int, first []byte) error {
	_, err := p.start(env, n, p.hostFor(env.Index), strconv.Itoa(env.Index), first)
	return err
}

// startHere starts a process on this host. n is the number of peers.
func (p *processes) startHere(env wire.Environment, n int, to proc.Receiver) (proc.Process, error) {
	cmd := exec.Command(p.path, p.o.Args...)
	cmd.Args[0] = p.o.Program
	cmd.Env = proc.ChildEnvironment(append(os.Environ(), p.o.Forward...), env, n)
	piped := p.input.GoesTo(env.Index) && p.input.File() == nil
	if p.input.GoesTo(env.Index) && !piped {
		cmd.Stdin = p.input.File()
	}
	c, err := proc.StartLocal(env.Index, n, cmd, piped, to, p.orphans)
	if err != nil {
		return nil, err
	}
	c.Words = &p.words
	return c, nil
}

// giveInput starts to copy the standard input to the peers that get it. Peers that are started
// later get none.
func (p *processes) giveInput() {
	var to []proc.Process
	for _, c := range p.peers {
		if p.input.GoesTo(c.index) && (c.host != "" || p.input.File() == nil) {
			to = append(to, c.Process)
		}
	}
	if len(to) > 0 {
		go copyInput(p.input.Stdin, to) // not waited for, because nothing can end a read of standard input
	}
	p.input = spec.Input{}
}

// hostFor returns the host for a process that is started now; nil for this host.
func (p *processes) hostFor(index int) *hosts.Host { return p.hosts.HostFor(index, p.running) }

// running returns the number of peers that run on a host.
func (p *processes) running(host string) (n int) {
	for _, c := range p.peers {
		if c.host == host {
			n++
		}
	}
	return n
}

// get returns the running process with an index, or nil.
func (p *processes) get(index int) *child {
	if index < spec.MaxPeers {
		return p.peers[index]
	}
	return p.nodes[index]
}

// remove removes a process that has ended. Signals must not go to it any more, because the ID of
// its process group may be used again.
func (p *processes) remove(index int) {
	delete(p.peers, index)
	delete(p.nodes, index)
}

// all returns all running processes: peers, services and tasks.
func (p *processes) all() iter.Seq[*child] {
	return func(yield func(*child) bool) {
		for _, running := range []map[int]*child{p.peers, p.nodes} {
			for _, c := range running {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// count describes the number of running peers, as in "2 peers".
func (p *processes) count() string { return printable.Plural(len(p.peers), "peer", "peers") }

// pids returns the process IDs of the running peers, in no order.
func (p *processes) pids() (out []int) {
	for _, c := range p.peers {
		out = append(out, c.PID())
	}
	return out
}

// staying returns the running peers that were not asked to leave, on a host, or on all hosts if it has no
// name.
func (p *processes) staying(host string) (out []*child) {
	for _, c := range p.peers {
		if c.asked.IsZero() && (host == "" || c.host == host) {
			out = append(out, c)
		}
	}
	return out
}

// seatsOn returns the indices of the peers that run on a host, or would be started there.
func (p *processes) seatsOn(h *hosts.Host) (out []int) {
	for i := range spec.MaxPeers {
		if c := p.peers[i]; c != nil && c.host == h.Name || c == nil && p.hosts.AssignedHost(i) == h {
			out = append(out, i)
		}
	}
	return out
}

// signal sends a signal to the process groups of all processes.
func (p *processes) signal(sig syscall.Signal) {
	for c := range p.all() {
		c.Signal(sig)
	}
}

// stop stops the processes and then this launcher. It handles Ctrl-Z: the terminal's signal reaches
// only the launcher, because each process has its own process group. The shell's fg or bg continues
// the launcher, and resume then continues the processes.
func (p *processes) stop() {
	p.suspended = true
	p.signal(syscall.SIGSTOP)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// resume continues stopped processes.
func (p *processes) resume() {
	if p.suspended {
		p.suspended = false
		p.signal(syscall.SIGCONT)
	}
}

// copyInput copies the input to processes, until it ends or all of them have closed their ends.
// Each part goes to all of them before the next part is read.
func copyInput(from io.Reader, to []proc.Process) {
	part := make([]byte, wire.MaxPart/4)
	for len(to) > 0 {
		n, err := from.Read(part)
		if n > 0 {
			to = slices.DeleteFunc(to, func(p proc.Process) bool { return p.Input(part[:n]) != nil })
		}
		if err == nil {
			continue
		}
		for _, p := range to {
			_ = p.Input(nil) // an error means that the process has closed its end
		}
		return
	}
}

// openLog opens the log of a peer, which only this user may read. It returns nil if dir is "". If
// again is set, for a restarted peer, it appends to the file, so that the output before the crash
// is kept.
func openLog(dir, name string, again bool) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	path := filepath.Join(dir, name+".log")
	if again {
		return private.Append(path)
	}
	return private.Create(path)
}
