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

// Result says how a job ended, as this launcher has seen it.
type Result struct {
	Job   string
	Exits []Exit      // in the order in which they were seen to end
	Done  *event.Done // the job's result, if its peers reported one
	// Status is the exit status for the launcher: 0 when the job finished, though peers
	// died on the way, or nothing failed; 1 when the program failed, also with the result
	// in hand; StatusQuorum when the group gave up because too few peers were left; 128 +
	// signal when interrupted.
	Status int
}

// Run starts the peers of a job, connects them, passes on their output and returns
// when all have ended. No process that it started, and none of their process groups,
// outlives it. An error says that the job could not be started: a bad option, or a
// program that cannot be run, or no job to join; how the program fared is in the Result.
//
// The end of a peer does not end the job: the others are told that its death is certain
// and go on without it.
//
// The end of ctx counts as SIGTERM, and is told with its cause; a signal that follows it counts
// as the first one.
func Run(ctx context.Context, o Options) (Result, error) {
	sought := o.key() // not that of a job on this host, which complete finds
	path, err := o.complete(ctx)
	if err != nil {
		return Result{}, err
	}
	if all, err := net.Interfaces(); err == nil && o.Peers > 1 && len(o.Hosts) == 0 { // one alone needs no network
		if err := checkLoopback(all); err != nil {
			return Result{}, err
		}
	}
	// The death signal of children comes when the thread ends that started them.
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
			r.out.signal = syscall.SIGKILL // the deaths that follow are no news
			r.killAll()
			r.loop(ctx)
			_ = r.closeConsole(ctx, "")
			return Result{}, startError(o.Program, err)
		}
	}
	r.discover(ctx, sought)
	r.loop(ctx)
	r.undiscover()
	return r.finish(ctx), nil
}

// warnOfPlaintext says what --encrypt never gives up. A MAC for each frame would keep the
// integrity, and takes more than a third of the processor's time that TLS takes.
func (r *runner) warnOfPlaintext() {
	clear := r.o.Transport == "" || r.o.Transport == "auto" || r.o.Transport == "direct"
	if r.o.Encrypt == "never" && clear && !r.o.Plain {
		r.say("--encrypt never: whoever is on the network between two hosts can read gradients and change them unnoticed; " +
			"keep it to a network that you trust, or leave it out")
	}
}

// order is what the peers are told alike.
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

// spawn starts the process of peer index, one of n, and with it what watches over it.
// first is an event about that, or nil. Starting takes about a millisecond; signals wait
// in their channel meanwhile.
func (r *runner) spawn(index, n int, first []byte) error {
	env := r.environment(index, max(n, index+1))
	c, err := r.startChild(env, n, r.hosts.place(index, r.children), strconv.Itoa(index), first)
	if err != nil {
		return err
	}
	r.children[index] = c
	return nil
}

// environment is what the process with an index is told, one of n peers.
func (r *runner) environment(index, n int) environment {
	return environment{job: r.o.Job, index: index, peers: n,
		fd: childFD, transport: r.o.Transport, encrypt: r.o.Encrypt, relay: r.o.Relay, listen: r.listen(), site: r.o.Site}
}

// startChild starts a process on a host, nil for this one, and what watches over it. The name is
// for people and its log.
func (r *runner) startChild(env environment, n int, h *remoteHost, name string, first []byte) (*child, error) {
	index := env.index
	log, err := openLog(r.o.LogDir, name, r.logged[index])
	if err != nil {
		return nil, fmt.Errorf("launch: log of peer %s: %w", name, err)
	}
	r.logged[index] = true
	f := newFeed(index, r.prefix(name, h), r.console, r.notices, log)
	c := &child{index: index, begun: time.Now()}
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
	r.work.Go(func() {
		c.watch()
		f.close()
	})
	return c, nil
}

// start starts the process of a peer on this host, one of n.
func (r *runner) start(env environment, n int, to receiver) (process, error) {
	cmd := exec.Command(r.path, r.o.Args...)
	cmd.Args[0] = r.o.Program
	cmd.Env = childEnvironment(append(os.Environ(), r.o.Forward...), env, n)
	return startLocal(env.index, cmd, to, r.orphans)
}

// prefix is what each line of a peer's output begins with.
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

// listen returns where a peer that is started now listens first: at once on the network if
// the job was opened meanwhile.
func (r *runner) listen() string {
	if r.o.Listen == listenAuto && r.meet.latest.Open {
		return listenAll
	}
	return r.o.Listen
}

// shortID returns the ID of a peer as the log has it, "" if it has not said hello.
func (m *meeting) shortID(i int) string {
	g := m.guests[i]
	if len(g.ids) == 0 {
		return ""
	}
	return g.ids[len(g.ids)-1].Short()
}
