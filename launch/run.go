package launch

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/p2p"
)

// Result describes how a job ended, as its launcher has seen it.
type Result struct {
	Job   string
	Exits []Exit      // in the order in which the processes ended
	Done  *event.Done // the job's result, if its peers reported one
	// Status is the launcher's exit status. It is 0 when the job finished, even if peers died on
	// the way, or when nothing failed. It is 1 when the program failed, even if the result was
	// reported; StatusQuorum when the group gave up because too few peers were left; and 128 +
	// signal when the job was interrupted.
	Status int
}

// Run starts the peers of a job, connects them, passes on their output and returns when all have
// ended. When Run returns, no process that it has started, and no process in their process groups,
// is left. An error means that the job could not be started: a bad option, a program that cannot be
// run, or no job to join. The Result tells how the program ended.
//
// The end of a peer does not end the job: the other peers learn that its death is certain and go
// on without it.
//
// The end of ctx acts like SIGTERM and is reported with its cause. After it the next signal counts
// as a first signal.
func Run(ctx context.Context, o Options) (Result, error) {
	sought := o.key() // read before complete, which sets the ticket of a job on this host
	path, err := o.complete(ctx)
	if err != nil {
		return Result{}, err
	}
	if all, err := net.Interfaces(); err == nil && o.Peers > 1 && len(o.Remote.Hosts) == 0 { // a single peer needs no network
		if err := checkLoopback(all); err != nil {
			return Result{}, err
		}
	}
	// The kernel sends a child its parent-death signal when the thread that started the child ends.
	// So this goroutine keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := newRunner(o, path, o.order())
	release, err := serveLauncher(r)
	if err != nil {
		_ = r.closeConsole(ctx, "")
		return Result{}, err
	}
	release = sync.OnceFunc(release)
	defer release()
	var stop func()
	r.procs.orphans, stop = adoptOrphans()
	defer stop()
	defer func() { r.procs.hosts.hangUp() }()
	if err := r.connect(ctx); err != nil {
		_ = r.closeConsole(ctx, "")
		return Result{}, err
	}
	if risky := r.o.plaintextRisk(); risky != "" {
		r.report.printf("%s", risky)
	}
	if err := r.peers.start(); err != nil {
		r.outcome.signal = syscall.SIGKILL // the deaths after this are not reported
		r.peers.killAll()
		r.loop(ctx)
		_ = r.closeConsole(ctx, "")
		return Result{}, startError(o.Program, err)
	}
	r.procs.giveInput()
	r.discovery.start(ctx, r.o.Network.Discovery, sought, r.report.console.say)
	r.loop(ctx)
	release() // no process is left
	r.discovery.finish(r.membership.done)
	return r.finish(ctx), nil
}

// plaintextRisk returns a warning if data between hosts has neither confidentiality nor integrity,
// because --encrypt is never; otherwise "". A MAC for each frame would add integrity, but needs
// about two thirds of the processor time of encryption.
func (o *Options) plaintextRisk() string {
	if !o.Network.sendsPlaintext() || o.Output.Plain {
		return ""
	}
	return "--encrypt never: whoever is on the network between two hosts can read gradients and change them unnoticed; " +
		"use it only on a network that you trust, or leave the flag out"
}

// order returns the part of the start order that is the same for all peers. Only a launcher that
// begins a job has a secret: its public key is in the first view and admits the launcher's later
// peers.
func (o *Options) order() startOrder {
	n, m := &o.Network, &o.Membership
	order := startOrder{Launcher: rand.Text(), PID: os.Getpid(), Ticket: o.Ticket,
		LAN: n.LAN, PortMap: n.PortMap, DHT: n.Discovery != nil,
		groupSettings: groupSettings{Any: m.Quorum == "any", MinPeers: m.MinPeers, RejoinTimeout: m.RejoinTimeout, StateRate: m.StateRate}, JoinTimeout: m.JoinTimeout}
	order.HostKey = make([]byte, p2p.HostKeySize)
	_, _ = rand.Read(order.HostKey) // never fails
	if !o.Join {
		order.Secret = make([]byte, secretSize)
		_, _ = rand.Read(order.Secret)
		order.Job = rand.Text()
	}
	return order
}
