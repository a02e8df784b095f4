package launch

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/p2p"
)

// Result describes how a job ended, as its launcher has seen it.
type Result struct {
	Job   string
	Exits []Exit      // in the order of their ends
	Done  *event.Done // the job's result, if its peers reported one
	// Status is the launcher's exit status. It is 0 when the job finished, even if peers died on
	// the way, or when nothing failed. It is 1 when the program failed, even if the result was
	// reported; StatusQuorum when the group gave up because too few peers were left; and 128 +
	// signal when the job was interrupted.
	Status int
}

// Run starts the peers of a job, connects them, passes on their output and returns when all have
// ended. No process that it started, and no process in their process groups, outlives it. An error
// means that the job could not be started: a bad option, a program that cannot be run, or no job
// to join. The Result tells how the program ended.
//
// The end of a peer does not end the job: the other peers learn that its death is certain and go
// on without it.
//
// The end of ctx acts like SIGTERM and is reported with its cause. The next signal then counts as
// the first one.
func Run(ctx context.Context, o Options) (Result, error) {
	sought := o.key() // read before complete, which sets the ticket of a job on this host
	path, err := o.complete(ctx)
	if err != nil {
		return Result{}, err
	}
	if all, err := net.Interfaces(); err == nil && o.Peers > 1 && len(o.Hosts) == 0 { // a single peer needs no network
		if err := checkLoopback(all); err != nil {
			return Result{}, err
		}
	}
	// The kernel sends the death signal of children when the thread that started them ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := newRunner(o, path, o.order())
	var stop func()
	r.orphans, stop = adoptOrphans()
	defer stop()
	defer func() { r.hosts.hangUp() }()
	if err := r.connect(ctx); err != nil {
		_ = r.closeConsole(ctx, "")
		return Result{}, err
	}
	r.warnOfPlaintext()
	for i := range r.o.Peers {
		if err := r.spawn(i, r.o.Peers, nil); err != nil {
			r.outcome.signal = syscall.SIGKILL // the deaths that follow are not reported
			r.killAll()
			r.loop(ctx)
			_ = r.closeConsole(ctx, "")
			return Result{}, startError(o.Program, err)
		}
	}
	r.startDiscovery(ctx, sought)
	r.loop(ctx)
	r.stopDiscovery()
	return r.finish(ctx), nil
}

// warnOfPlaintext warns that data between hosts has neither confidentiality nor integrity if
// --encrypt is never. A MAC for each frame would add integrity, but needs more than a third of the
// processor time of TLS.
func (r *runner) warnOfPlaintext() {
	clear := r.o.Transport == "" || r.o.Transport == "auto" || r.o.Transport == "direct"
	if r.o.Encrypt == "never" && clear && !r.o.Plain {
		r.printf("--encrypt never: whoever is on the network between two hosts can read gradients and change them unnoticed; " +
			"keep it to a network that you trust, or leave it out")
	}
}

// order returns the part of the start order that is the same for all peers.
func (o *Options) order() startOrder {
	order := startOrder{Launcher: rand.Text(), PID: os.Getpid(), Any: o.Quorum == "any",
		MinPeers: o.MinPeers, RejoinTimeout: o.RejoinTimeout, StateRate: o.StateRate, Ticket: o.Ticket, LAN: o.LAN, PortMap: o.PortMap, DHT: o.Discovery != nil, JoinTimeout: o.JoinTimeout}
	order.HostKey = make([]byte, p2p.HostKeySize)
	_, _ = rand.Read(order.HostKey) // never fails
	if !o.Join {
		order.Secret = make([]byte, secretSize)
		_, _ = rand.Read(order.Secret)
	}
	return order
}

// spawn starts the process of peer index, one of n peers, and the goroutine that watches it. first
// is an event about the start for the event log, or nil. A start takes about a millisecond; signals
// wait in their channel meanwhile.
func (r *runner) spawn(index, n int, first []byte) error {
	env := r.environment(index, max(n, index+1))
	c, err := r.startChild(env, n, r.hosts.hostFor(index, r.children), strconv.Itoa(index), first)
	if err != nil {
		return err
	}
	r.children[index] = c
	return nil
}

// environment returns the environment of the process with an index. n is the number of peers.
func (r *runner) environment(index, n int) environment {
	return environment{job: r.o.Job, index: index, peers: n,
		fd: childFD, transport: r.o.Transport, encrypt: r.o.Encrypt, relay: r.o.Relay, listen: r.listen(), site: r.o.Site}
}

// startChild starts a process and the goroutine that watches it, on host h, or on this host if h
// is nil. name appears in messages and in the name of the log.
func (r *runner) startChild(env environment, n int, h *remoteHost, name string, first []byte) (*child, error) {
	index := env.index
	log, err := openLog(r.o.LogDir, name, r.logged[index])
	if err != nil {
		return nil, fmt.Errorf("launch: log of peer %s: %w", name, err)
	}
	r.logged[index] = true
	f := newFeed(index, r.prefix(name, h), r.console, r.notices, log)
	c := &child{index: index, begun: time.Now()}
	// A remote host reports a failed start later, as an exit.
	if h != nil {
		env.site = cmp.Or(h.Site, env.site)
		c.host, c.process = h.Name, h.spawn(index, r.hosts.share(h, n), env.list(), f)
	} else if c.process, err = r.start(env, n, f); err != nil {
		f.close()
		return nil, err
	}
	if first != nil {
		f.event(first)
	}
	// The log stays open until the last output has been read.
	r.work.Go(func() {
		c.watch()
		f.close()
	})
	return c, nil
}

// start starts the process of a peer on this host. n is the number of peers.
func (r *runner) start(env environment, n int, to receiver) (process, error) {
	cmd := exec.Command(r.path, r.o.Args...)
	cmd.Args[0] = r.o.Program
	cmd.Env = childEnvironment(append(os.Environ(), r.o.Forward...), env, n)
	return startLocal(env.index, cmd, to, r.orphans)
}

// prefix returns the prefix of a peer's output lines.
func (r *runner) prefix(name string, h *remoteHost) string {
	switch {
	case r.o.Plain:
		return ""
	case h != nil:
		return fmt.Sprintf("[%s@%s] ", name, h.Name)
	case r.o.Label != "":
		return fmt.Sprintf("[%s@%s] ", name, r.o.Label)
	}
	return fmt.Sprintf("[%s] ", name)
}

// listen returns the Listen value of a peer that is started now: all interfaces if the job has
// been opened, otherwise the option.
func (r *runner) listen() string {
	if r.o.Listen == listenAuto && r.rendezvous.latest.Open {
		return listenAll
	}
	return r.o.Listen
}

// shortID returns the short form of a peer's present ID, as in logs, "" before its hello.
func (r *rendezvous) shortID(i int) string {
	g := r.peers[i]
	if len(g.ids) == 0 {
		return ""
	}
	return g.ids[len(g.ids)-1].Short()
}
