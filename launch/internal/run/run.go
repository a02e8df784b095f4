package run

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/hosts"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/metrics"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// Run is launch.Run.
func Run(ctx context.Context, o spec.Options) (spec.Result, error) {
	sought := keyOf(o.Ticket) // read before complete, which sets the ticket of a job on this host
	path, err := complete(ctx, &o)
	if err != nil {
		return spec.Result{}, err
	}
	if all, err := net.Interfaces(); err == nil && o.Peers > 1 && len(o.Remote.Hosts) == 0 { // a single peer needs no network
		if err := checkLoopback(all); err != nil {
			return spec.Result{}, err
		}
	}
	// The kernel sends a child its parent-death signal when the thread that started the child ends.
	// So this goroutine keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, key, _ := ed25519.GenerateKey(nil) // never fails
	r := newRunner(o, path, commonOrder(&o, wire.LauncherName(key)))
	r.peers.herald.key = key
	release, err := serveLauncher(r)
	if err != nil {
		_ = r.closeConsole(ctx, "")
		return spec.Result{}, err
	}
	release = sync.OnceFunc(release)
	defer release()
	var stop func()
	r.procs.orphans, stop = proc.AdoptOrphans()
	defer stop()
	defer func() { r.procs.hosts.HangUp() }()
	if err := r.connect(ctx); err != nil {
		_ = r.closeConsole(ctx, "")
		return spec.Result{}, err
	}
	if risky := plaintextRisk(r.o); risky != "" {
		r.report.Printf("%s", risky)
	}
	if err := r.openOutputs(); err != nil {
		_ = r.closeConsole(ctx, "")
		return spec.Result{}, err
	}
	if err := r.peers.start(); err != nil {
		r.outcome.signal = syscall.SIGKILL // the deaths after this are not reported
		r.peers.killAll()
		r.loop(ctx)
		r.closeOutputs(0)
		_ = r.closeConsole(ctx, "")
		return spec.Result{}, proc.StartError(o.Program, err)
	}
	r.procs.giveInput()
	r.discovery.start(ctx, r.o.Network.Discovery, sought, r.report.Console.Say)
	r.loop(ctx)
	release() // no process is left
	r.discovery.finish(r.membership.Done)
	r.closeOutputs(r.hookPatience())
	return r.finish(ctx), nil
}

// openOutputs opens what gets the events and the figures of the job beside the console.
func (r *runner) openOutputs() (err error) {
	if r.metrics, err = r.serveMetrics(); err != nil {
		return err
	}
	if err = r.peers.journal.start(r.o, r.report.Printf, r.procs.orphans); err != nil {
		_ = r.metrics.Close() // nothing is lost
		return err
	}
	r.trainJob = r.joinTrainJob()
	return nil
}

// closeOutputs closes them after the loop. Commands of events and files get the patience to end.
func (r *runner) closeOutputs(patience time.Duration) {
	r.trainJob.finish(r.peers.journal.model.Progress(), r.report.IsLeading())
	r.peers.journal.finish(patience)
	_ = r.metrics.Close() // nothing is lost
}

// metricsPatience bounds the wait of a client of metrics for the launcher's loop.
const metricsPatience = 5 * time.Second

// serveMetrics serves the metrics of the job, if the options ask for it.
func (r *runner) serveMetrics() (*metrics.Server, error) {
	if r.o.Output.Metrics == "" {
		return nil, nil
	}
	s, err := metrics.Serve(r.o.Output.Metrics, func() (s timeline.Snapshot, ok bool) {
		ctx, cancel := context.WithTimeout(context.Background(), metricsPatience)
		defer cancel()
		ok = r.calls.do(ctx, func() { s = r.peers.journal.model.Snapshot() })
		return s, ok
	})
	if err == nil {
		r.report.Printf("metrics at http://%s/metrics", s.Addr())
	}
	return s, err
}

// hookPatience returns how long the launcher waits, at the end of the job, for the commands that are due.
func (r *runner) hookPatience() time.Duration {
	if r.outcome.signal != 0 {
		return consolePatience
	}
	return hookPatience
}

// plaintextRisk returns a warning if data between hosts has neither confidentiality nor integrity,
// because --encrypt is never; otherwise "". A MAC for each frame would add integrity, but needs
// about two thirds of the processor time of encryption.
func plaintextRisk(o *spec.Options) string {
	if !o.Network.SendsPlaintext() || o.Output.Plain {
		return ""
	}
	return "--encrypt never: whoever is on the network between two hosts can read gradients and change them unnoticed; " +
		"use it only on a network that you trust, or leave the flag out"
}

// commonOrder returns the part of the start order that is the same for all peers of the launcher with a name. Only a launcher that
// begins a job has a secret: its public key is in the first view and admits the launcher's later
// peers.
func commonOrder(o *spec.Options, name string) wire.StartOrder {
	n, m := &o.Network, &o.Membership
	order := wire.StartOrder{Launcher: name, PID: os.Getpid(), Ticket: o.Ticket,
		Logged: o.Output.Events != nil || o.Output.Sink != nil || len(o.Output.Hooks) > 0 || o.Output.Metrics != "" || o.Output.Trace != "", LAN: n.LAN, PortMap: n.PortMap, DHT: n.Discovery != nil,
		GroupSettings: wire.GroupSettings{Any: m.Quorum == "any", MinPeers: m.MinPeers, RejoinTimeout: m.RejoinTimeout, StateRate: m.StateRate}, JoinTimeout: m.JoinTimeout}
	order.HostKey = make([]byte, p2p.HostKeySize)
	_, _ = rand.Read(order.HostKey) // never fails
	if !o.Join {
		order.Secret = make([]byte, wire.SecretSize)
		_, _ = rand.Read(order.Secret)
		order.Job = rand.Text()
	}
	return order
}

// complete checks the options, sets defaults and returns the path of the program.
func complete(ctx context.Context, o *spec.Options) (path string, err error) {
	if err := o.Check(); err != nil {
		return "", fmt.Errorf("launch: %w: %w", spec.ErrOptions, err)
	}
	path, err = proc.FindProgram(o.Program)
	if err != nil && (len(o.Remote.Hosts) == 0 || o.Remote.Copy) {
		return "", err // on other hosts the program may exist
	}
	if o.Join {
		err = find(ctx, o)
	} else {
		err = nameJob(o)
	}
	if err != nil {
		return "", err
	}
	if err := o.Output.Prepare(); err != nil {
		return "", err
	}
	o.Defaults()
	return path, nil
}

// nameJob makes a name for the job, or checks that the given name is free.
func nameJob(o *spec.Options) error {
	if o.Job == "" {
		o.Job = spec.JobName(o.Program, strings.ToLower(rand.Text()[:5]))
		return nil
	}
	if err := spec.ValidJob(o.Job); err != nil {
		return fmt.Errorf("launch: %w: %w", spec.ErrOptions, err)
	}
	// A launcher that begins at the same time is detected later, by its socket. If the list cannot be
	// read, the only effect is that elrun status mixes both jobs.
	used, _ := ctl.ListSockets()
	if slices.ContainsFunc(used, func(n ctl.SocketName) bool { return n.Job == o.Job }) {
		return nameTaken(o.Job)
	}
	return nil
}

// connect connects to all hosts at the same time. It reports hosts that fail; the job runs on the
// others if they have room for MinPeers peers.
func (r *runner) connect(ctx context.Context) error {
	if len(r.o.Remote.Hosts) == 0 {
		return nil
	}
	p, err := hosts.PlanFor(r.o, r.procs.path)
	if err != nil {
		return err
	}
	// Connect to all hosts concurrently, and keep those that answer.
	all := make([]*hosts.Host, len(r.o.Remote.Hosts))
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for i, h := range r.o.Remote.Hosts {
		all[i] = hosts.NewHost(h, r.procs.orphans)
		work.Go(func() { errs[i] = all[i].Connect(ctx, p) })
	}
	work.Wait()
	l := &hosts.List{Connects: hosts.NewConnects(p, r.procs.orphans)}
	r.procs.hosts = l
	var failed []error
	for i, h := range all {
		if errs[i] != nil {
			failed = append(failed, errs[i])
			continue
		}
		l.Hosts = append(l.Hosts, h)
	}
	// Of these, leave out hosts that cannot reach each other.
	failed = append(failed, l.DropUnreachable(!hosts.Wide(r.o.Network.Listen), r.o.Network.Relay == "members")...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Assign peers to slots: the job needs room for its minimum.
	l.Assign(r.o.Peers)
	room := len(l.Assignments)
	if room < max(1, r.o.Membership.MinPeers) {
		if len(l.Hosts) > 0 {
			failed = append(failed, fmt.Errorf("the usable hosts have room for %s, and --min-peers wants %d: name more hosts, or a lower minimum", printable.Plural(room, "peer", "peers"), r.o.Membership.MinPeers))
		}
		return fmt.Errorf("launch: %s", hosts.JoinErrors(failed))
	}
	for _, err := range failed {
		r.report.Printf("%v; the job runs on the other hosts", err)
	}
	// From here on the number of peers is known, and the messages of the agents are handled.
	r.peers.want = room
	for _, h := range l.Hosts {
		h.Run(r.report.Console.Say)
	}
	return nil
}

// find sets the name of the job to join, and gets a ticket if none is given.
func find(ctx context.Context, o *spec.Options) error {
	if o.Ticket == "" {
		// Without a ticket the job is on this host: one of its peers makes a local ticket.
		j, err := ctl.Find(ctx, o.Job)
		if err != nil {
			return err
		}
		t, err := j.AskTicket(ctx, wire.Request{Request: "ticket", ValidMS: wire.LocalTicket.Milliseconds(), Local: true})
		if err != nil {
			return err
		}
		o.Job, o.Ticket = t.Job, t.Text
		if t.Open {
			o.Network.Listen = spec.OpenListen(o.Network.Listen)
		}
		return nil
	}
	// With a ticket the job may be anywhere, so the peers listen on the network.
	job, err := checkTicket(o.Ticket, time.Now())
	if err != nil {
		return fmt.Errorf("launch: bad ticket: %w", err)
	}
	if o.Job != "" && o.Job != job {
		return fmt.Errorf("launch: %w: the ticket is for job %s, not for %s", spec.ErrOptions, job, o.Job)
	}
	o.Job, o.Network.Listen = job, spec.OpenListen(o.Network.Listen)
	return nil
}

// keyOf returns the public key of the ticket by which the peers join, "" without a ticket.
func keyOf(text string) string {
	t, err := ticket.Parse(text)
	if err != nil {
		return ""
	}
	return t.Signer().ID
}

// checkTicket checks a ticket before anything is started, and returns the name of its job. An
// expired ticket is an error.
func checkTicket(text string, now time.Time) (job string, err error) {
	t, err := ticket.Parse(text)
	if err != nil {
		return "", err
	}
	if now.After(t.Expiry) {
		return "", fmt.Errorf(`%w at %s, and the clock here says %s: ask for a new one with "elrun ticket %s"`, ticket.ErrExpired,
			t.Expiry.Format(time.RFC3339), now.UTC().Format(time.RFC3339), t.Job)
	}
	if err := spec.ValidJob(t.Job); err != nil {
		return "", fmt.Errorf("%w: %w", ticket.ErrFormat, err)
	}
	return t.Job, nil
}
