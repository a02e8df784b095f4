package program

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/sharedkey"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/inpeer"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/rpc"
	"github.com/elrun/elrun/launch/internal/run"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// Type is a way to run the nodes of a program.
type Type struct {
	options *spec.Options // nil for goroutines
}

// Goroutines is launch.Goroutines.
func Goroutines() Type { return Type{} }

// Processes is launch.Processes.
func Processes(o spec.Options) Type { return Type{options: &o} }

// Run runs the program and returns when all its nodes have ended. The result is the result of the
// peers, as for the function Run, but with status 1 if a service or a task has failed for good. In
// a process that was started for one node, Run returns when this node has ended, with an error if
// it failed, and the program should then end. So main should do only what every node needs.
func (p *Program) Run(ctx context.Context, t Type) (spec.Result, error) {
	info, err := p.info()
	if err != nil {
		return spec.Result{}, err
	}
	if t.options == nil {
		return p.runInProcess(ctx, info)
	}
	env, launched, err := wire.ParseEnvironment(os.LookupEnv)
	switch {
	case err != nil:
		return spec.Result{}, err
	// Started by a user: this process becomes the launcher.
	case !launched:
		return p.launch(ctx, *t.options, info)
	// Started by a launcher, without the name of a node: this process is a peer.
	case env.Node == "":
		return spec.Result{}, p.runPeer(ctx, info)
	}
	if err := p.runNode(ctx, env, info); err != nil {
		return spec.Result{}, fmt.Errorf("launch: node %s: %w", env.Node, err)
	}
	return spec.Result{}, nil
}

// Main is Run for a main function that does nothing else. It writes an error to standard error and
// returns the status for os.Exit.
func (p *Program) Main(ctx context.Context, o spec.Options) int {
	result, err := p.Run(ctx, Processes(o))
	if err == nil {
		return result.Status
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", p.name, err)
	switch {
	case errors.Is(err, elastic.ErrQuorum):
		return spec.StatusQuorum
	case errors.Is(err, spec.ErrOptions):
		return 2
	}
	return 1
}

// launch runs the launcher of the program's processes.
func (p *Program) launch(ctx context.Context, o spec.Options, info wire.ProgramInfo) (spec.Result, error) {
	if o.Program == "" {
		self, err := os.Executable()
		if err != nil {
			return spec.Result{}, fmt.Errorf("launch: find this program: %w", err)
		}
		o.Program, o.Args = self, os.Args[1:]
	}
	if o.Peers == 0 {
		o.Peers = info.Peers().Peers
	}
	for to, from := range map[*io.Writer]io.Writer{&o.Output.Stdout: os.Stdout, &o.Output.Stderr: os.Stderr} {
		if *to == nil {
			*to = from
		}
	}
	// Two signals fit in the channel: the first asks the peers to leave, the second kills them.
	if o.Signals == nil {
		signals := make(chan os.Signal, 2)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(signals)
		o.Signals = signals
	}
	return run.Run(ctx, o)
}

// runPeer runs this process as a peer of the program.
func (p *Program) runPeer(ctx context.Context, info wire.ProgramInfo) error {
	d := newDirectory()
	g, err := inpeer.InitAs(ctx, func(ctx context.Context, a *inpeer.Link) error {
		a.Describe(info, d.learn)
		return d.wait(ctx, a.LauncherGone)
	})
	if err != nil {
		return err
	}
	// Errors on leaving change nothing about a finished job.
	defer g.Close()
	calls := newCallers(info.Digest(), d.dial)
	defer calls.close()
	p.connect(calls)
	return p.node(info.Peers().Name).peer(ctx, g)
}

// runNode runs this process as a service or a task, until it ends or is told to stop.
func (p *Program) runNode(ctx context.Context, env wire.Environment, info wire.ProgramInfo) error {
	n := p.node(env.Node)
	if n == nil || n.info.Kind == wire.KindPeers {
		return errors.New("the program has no such service or task")
	}
	// A signal and the death of the launcher both end ctx.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	a, err := inpeer.OpenLink(env.FD)
	if err != nil {
		return err
	}
	defer a.Close()
	lost := context.AfterFunc(a.LauncherGone, stop)
	defer lost()
	// The launcher answers the description with the directory, so wait for the directory before the
	// first call.
	d := newDirectory()
	a.Describe(info, d.learn)
	if err := d.wait(ctx, a.LauncherGone); err != nil {
		return err
	}
	calls := newCallers(info.Digest(), d.dial)
	defer calls.close()
	p.connect(calls)
	if n.info.Kind == wire.KindService {
		return n.serve(ctx, a, env, d, greeting(info.Digest(), n.info.Name))
	}
	err = n.task(ctx)
	if ctx.Err() != nil {
		return nil // the node was told to stop
	}
	return err
}

// serve serves the calls of a service until ctx ends. hello is the expected greeting. The service
// reports its addresses to the launcher only when it listens, so that no caller tries to connect
// too early.
func (n *node) serve(ctx context.Context, a *inpeer.Link, env wire.Environment, d *directory, hello string) error {
	s := rpc.NewServer(hello, n.methods)
	defer s.Close()
	local, err := ctl.Listen(ctl.SocketName{Job: env.Job, Index: env.Index, PID: os.Getpid()})
	if err != nil {
		return err
	}
	// Callers of this host authenticate by their user, callers of other hosts by the program's
	// secret.
	s.Serve(local, func(c net.Conn) (net.Conn, error) { return c, ctl.SameUser(c) })
	at := wire.ServingNode{Socket: local.Addr().String()}
	if d.wide {
		if at.Addrs, err = serveHosts(s, d.secret); err != nil {
			return err
		}
	}
	a.Post(wire.Message{Serving: &at}, wire.Result)
	<-ctx.Done()
	return nil
}

// purpose is what the processes of a program use the secret for, which the launcher passes only to them.
const purpose = "elrun program"

// errForeign reports that the other end does not have the secret.
var errForeign = errors.New("the other end is not a process of this program")

// serveHosts serves calls from other hosts over TLS, and returns the addresses.
func serveHosts(s *rpc.Server, secret []byte) ([]string, error) {
	config, err := sharedkey.TLS(secret, purpose, errForeign)
	if err != nil {
		return nil, err
	}
	// All interfaces: the launcher passes on every address of this host, and callers try them in
	// order.
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	s.Serve(l, func(c net.Conn) (net.Conn, error) {
		secured := tls.Server(c, config)
		return secured, secured.Handshake()
	})
	var addrs []string
	for _, ip := range proc.HostAddresses() {
		addrs = append(addrs, net.JoinHostPort(ip, strconv.Itoa(l.Addr().(*net.TCPAddr).Port)))
	}
	return addrs, nil
}
