package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/event"
	"github.com/elrun/elrun/internal/transport/p2p"
)

// Init makes this process a member of its job: the one of the launcher that started it,
// or a group of one. It returns when all peers are there. ctx bounds only Init; the
// group lives until its Close, which also flushes its events to the launcher. Call it
// once, early: the launcher notices no earlier that the program takes part.
//
// When the launcher dies the group is closed, so that all its calls fail, and the process
// exits 1.5 s later at the latest. Errors that are ErrLauncher say that the launcher
// gave up, for example because another peer's program ended before it joined.
func Init(ctx context.Context) (*elastic.Group, error) {
	env, launched, err := parseEnvironment(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if !launched {
		return solo(ctx, event.Discard{})
	}
	a, err := openAgent(env.fd)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(a.gone, func() { cancel(ErrLauncher) })
	defer stop()
	return a.join(ctx, env)
}

// join finds the other peers and joins the group, which then owns a:
//
//  1. listen, under a fresh identity
//  2. open the control socket, so that a peer that waits for others can be seen
//  3. say hello, and wait for the list of peers
//  4. let these in, and nobody else
//  5. agree on the first view and connect
//
// The group closes the parts in the order network, control socket, launcher: the
// events of the end still reach the launcher.
func (a *agent) join(ctx context.Context, env environment) (*elastic.Group, error) {
	// All peers are on this host, so nobody else needs to reach them.
	host, err := p2p.Listen(ctx, p2p.Config{Job: env.job, ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("launch: join job %s: %w", env.job, err), a.Close())
	}
	name, _ := os.Hostname() // only for people; an unknown name stays empty
	self := elastic.Member{ID: host.ID(), Index: env.index, Host: name, Addrs: host.Addrs()}
	closers := []io.Closer{host, a}
	control, err := serveControl(socketName{env.job, env.index, os.Getpid()}, a.status, terminate)
	if err != nil {
		return nil, errors.Join(err, closeAll(closers))
	}
	closers = []io.Closer{host, control, a}
	peers, err := a.hello(ctx, env.job, self)
	if err == nil {
		err = host.AddPeers(peers)
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(closers))
	}
	g, err := elastic.Join(ctx, elastic.Config{Self: self, Peers: peers, Control: host,
		Connector: host, Sink: a, Closers: closers})
	if err != nil {
		return nil, err // Join has closed the closers
	}
	// Calls in progress fail with ErrClosed, which is how the program learns of it.
	context.AfterFunc(a.gone, func() { _ = g.Close() })
	return g, nil
}

// closeAll closes in order and returns all that went wrong.
func closeAll(closers []io.Closer) error {
	var errs []error
	for _, c := range closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
