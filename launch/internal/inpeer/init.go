package inpeer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
)

// Init is launch.Init.
func Init(ctx context.Context) (*elastic.Group, error) {
	return initialize(ctx, nil, nil)
}

// InitAs is Init with a function that is called first if there is a launcher.
func InitAs(ctx context.Context, first func(ctx context.Context, a *Link) error) (*elastic.Group, error) {
	return initialize(ctx, nil, first)
}

// initialize is Init of this process, or InitFor of a sidecar. It calls the function first, if there is
// one and a launcher.
func initialize(ctx context.Context, s *Sidecar, first func(ctx context.Context, a *Link) error) (*elastic.Group, error) {
	env, launched, err := wire.ParseEnvironment(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if !launched {
		return solo(ctx)
	}
	if env.Node != "" {
		return nil, fmt.Errorf("launch: node %s is no peer: only the function of a Program's peers has a group", env.Node)
	}
	a, err := s.openLink(env.FD)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The death of the launcher cancels the join, with ErrLauncher as the cause.
	stop := context.AfterFunc(a.LauncherGone, func() { cancel(ErrLauncher) })
	defer stop()
	p := &peer{a: a, env: env, sidecar: s, admission: newAdmission(env.Job), passes: newPasses()}
	p.inquiries.post = func(m wire.Message) { a.Post(m, wire.Transient) }
	a.watchFound(p.found.add)
	if first != nil {
		if err := first(ctx, a); err != nil {
			return nil, errors.Join(fmt.Errorf("launch: join job %s: %w", env.Job, err), a.Close())
		}
	}
	g, err := p.join(ctx)
	if err != nil {
		return nil, fmt.Errorf("launch: join job %s: %w", env.Job, err)
	}
	return g, nil
}

// join finds the other peers and joins the group. The group then owns everything that join opens:
//
//  1. listen, under a fresh identity
//  2. open the control socket, so that the status of a waiting peer can be read
//  3. say hello, and wait for the order that says how to join
//  4. get the right to join (signature or ticket), or admit the peers of the first view
//  5. agree on the first view and connect, or let the group ask to join
//
// The group closes its parts in the order network, discovery, meter, control socket, launcher, so that
// the last events still reach the launcher.
func (p *peer) join(ctx context.Context) (*elastic.Group, error) {
	// Steps 1 and 2. A peer without a control socket goes on, because the job is more important
	// than the socket.
	if err := p.open(ctx); err != nil {
		return nil, errors.Join(err, p.a.Close())
	}
	control, err := ctl.Serve(ctl.SocketName{Job: p.env.Job, Index: p.env.Index, PID: p.a.pid()},
		ctl.Services{Status: p.status, Stop: p.sidecar.stop, Grace: p.env.Grace, Scale: p.a.scale,
			Ticket: p.issue, Refresh: p.refresh, Revoke: p.admission.revoke, Kick: p.admission.kick, Bury: p.admission.bury, Record: p.record, Save: p.save})
	signals := newSignals()
	closers := []io.Closer{signals, p.a}
	if err == nil {
		closers = append([]io.Closer{control}, closers...)
	}
	noControl := err
	// Steps 3 and 4.
	cfg, err := p.configure(ctx)
	if err != nil {
		return nil, errors.Join(err, p.id.Close(), closeAll(closers))
	}
	if noControl != nil {
		p.a.Post(wire.Message{Note: noteOf(noControl)}, wire.History)
	}
	p.usage = (&usageMeter{}).start(p.order.Logged, p.emitUsage)
	if p.order.Logged {
		p.usage.work.Go(func() { p.compareClocks(p.usage.life) })
	}
	closers = append([]io.Closer{p.usage}, closers...)
	cfg.Closers = closers
	// Started passes deaths and orders that arrived early to the group.
	cfg.Started = func(g *elastic.Group) { // called before all peers have joined
		p.admission.setGroup(g)
		p.mu.Lock()
		p.group = g
		p.mu.Unlock()
		p.a.watchDead(g.Admin().Dead)
		p.a.watchOrders(func(m wire.Message) { p.handleOrder(g, m) })
		// If the job still waits for more peers, the group enters no view yet, but the missing
		// peers must be able to find it.
		if first := p.order.Peers; len(first) > 0 {
			p.onView(elastic.View{Epoch: 1, Members: first})
		}
	}
	// Step 5.
	g, err := elastic.Join(ctx, cfg)
	if err != nil {
		return nil, err // Join has closed the endpoint and the closers on its error
	}
	// SIGTERM and the death of the launcher make the group leave. The launcher learns of the signal
	// before the group begins to leave, so that it never takes the end of the program for a failure.
	signals.onTerm(func() {
		p.a.Post(wire.Message{Leaving: true}, wire.Result)
		g.Leave()
	})
	context.AfterFunc(p.a.LauncherGone, g.Leave)
	return g, nil
}

// noteOf returns the note that this peer goes on without a control socket.
func noteOf(err error) string {
	why, _, _ := strings.Cut(err.Error(), "\n")
	return wire.ClipNote("elrun status, stop, scale and ticket cannot ask this peer: " + why)
}

// configure says hello and returns the group's configuration from the answer.
func (p *peer) configure(ctx context.Context) (elastic.Config, error) {
	order, err := p.a.Hello(ctx, p.env.Job, p.id.ep.Self)
	if err != nil {
		return elastic.Config{}, err
	}
	p.order, p.id.ep.Self.Launcher = order, order.Launcher
	p.p2pHost.EndsReportedBy(order.Watcher())
	p.mapPorts(p.id)
	if err := p.admit(ctx); err != nil {
		p.a.Emit(event.Event{Time: time.Now(), Peer: p.id.ep.Self.ID.Short(), Index: p.env.Index, Body: event.Refused{Reason: wire.ClipNote(inner(err))}})
		return elastic.Config{}, err
	}
	p.p2pHost.UseHostKey(order.HostKey) // only after admit: peers that may have connected by now must be admitted first
	cfg := elastic.Config{Endpoint: p.id.endpoint(), Peers: order.Peers, Job: order.Job, Reopen: p.renewIdentity,
		Sole: order.Sole, Any: order.Any, MinPeers: order.MinPeers, RejoinTimeout: order.RejoinTimeout, StateRate: order.StateRate,
		OnSuspect: p.a.suspect, OnRetry: p.a.retry, OnView: p.onView, Inspect: proc.Inspect, Sink: p.a, Entry: p.admission.grantOf, Mirror: p.a.memory()}
	if order.Root != "" {
		cfg.Grants = []elastic.Grant{{Key: elastic.ID(order.Root)}}
	}
	if len(order.Peers) == 0 {
		cfg.Contacts = p.contacts
	}
	return cfg, nil
}

// closeAll closes all closers in order, even after an error, and returns all errors.
func closeAll(closers []io.Closer) error {
	var errs []error
	for _, c := range closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Launched is launch.Launched.
func Launched() bool {
	_, ok := os.LookupEnv(wire.EnvJob)
	return ok
}
