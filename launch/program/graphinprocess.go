package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/launch/internal/nodes"
	"github.com/elrun/elrun/launch/internal/rpc"
	"github.com/elrun/elrun/launch/internal/run"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/mem"
)

// inProcess runs a program whose nodes are goroutines of this process. The nodes use the same code
// as nodes in processes: calls pass through rpc, over pipes in memory, and peers form a group, over
// a network in memory. So a test in one process finds the same mistakes of a program as a run in
// processes, except for crashes.
type inProcess struct {
	p       *Program // has the functions of the nodes
	info    wire.ProgramInfo
	servers map[string]*rpc.Server // by name of the service; not changed while the nodes run

	// mu guards dones, to which the goroutines of the peers append.
	mu    sync.Mutex
	dones []run.DoneReport // results of the peers
}

// runInProcess runs the program in this process until all nodes have ended. Services end last, in
// the order of their StopAfter, because peers and tasks may call them until they end themselves.
// The error joins the errors of all nodes. The result is valid even with an error: it has the Done
// on which all finished peers agree.
func (p *Program) runInProcess(ctx context.Context, info wire.ProgramInfo) (spec.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &inProcess{p: p, info: info, servers: make(map[string]*rpc.Server)}
	for _, n := range p.nodes {
		if n.info.Kind == wire.KindService {
			h.servers[n.info.Name] = rpc.NewServer(greeting(info.Digest(), n.info.Name), n.methods)
		}
	}
	calls := newCallers(info.Digest(), h.dial)
	p.connect(calls)
	err := h.run(ctx, cancel)
	calls.close()
	order, _ := info.StopOrder() // no error: info.check has checked the order
	for _, name := range order {
		h.servers[name].Close()
	}
	done, disagree := run.AgreeDone(h.dones)
	return spec.Result{Job: info.Name, Done: done}, errors.Join(err, disagree)
}

// dial connects to a service through a pipe in memory.
func (i *inProcess) dial(_ context.Context, service string) (net.Conn, error) {
	s := i.servers[service]
	if s == nil {
		return nil, errNoService
	}
	// The server owns and closes one end, and the caller the other end.
	ours, theirs := net.Pipe()
	s.ServeConn(theirs)
	return ours, nil
}

// run runs peers and tasks, and returns when all have ended. If the peers end without a result,
// it cancels the tasks, which would otherwise wait for a training that has failed.
func (h *inProcess) run(ctx context.Context, stop context.CancelFunc) error {
	var peers, tasks sync.WaitGroup
	// Entry 0 is for the peers, entry 1+i for node i, so that no two goroutines write to the same
	// entry.
	errs := make([]error, 1+len(h.p.nodes))
	for i, n := range h.p.nodes {
		if n.info.Kind == wire.KindTask {
			tasks.Go(func() { errs[1+i] = n.runTask(ctx) })
		}
	}
	peers.Go(func() {
		errs[0] = h.peers(ctx)
		if len(h.dones) == 0 {
			stop()
		}
	})
	peers.Wait()
	tasks.Wait()
	return errors.Join(errs...)
}

// runTask calls the function of a task until it succeeds or has no restarts left. It returns the
// last error, or nil once ctx has ended.
func (n *node) runTask(ctx context.Context) error {
	r := nodes.NewRestarts(n.info.Restarts)
	if n.info.Backoff > 0 {
		r.Pause = n.info.Backoff
	}
	for {
		begun := time.Now()
		err := n.task(ctx)
		// The end of ctx is a request to stop, not a failure of the task.
		if err == nil || ctx.Err() != nil {
			return nil
		}
		wait, again := r.Decide(0, time.Since(begun))
		if !again {
			return fmt.Errorf("launch: task %s: %w", n.info.Name, err)
		}
		if pause.For(ctx, wait) != nil {
			return nil
		}
	}
}

// peers runs all peers, over a network in memory. The error of one peer does not end the others: as
// with processes, the other peers lose a member and go on.
func (h *inProcess) peers(ctx context.Context) error {
	n := h.p.node(h.info.Peers().Name)
	host, _ := os.Hostname() // the host name appears in messages only
	network := mem.NewNetwork()
	members := make([]elastic.Member, n.info.Peers)
	for i := range members {
		members[i] = elastic.Member{ID: elastic.ID(fmt.Sprintf("peer-%d", i)), Index: i, Host: host}
	}
	errs := make([]error, len(members))
	var work sync.WaitGroup
	for i, self := range members {
		work.Go(func() {
			if err := h.peer(ctx, n, self, members, network); err != nil {
				errs[i] = fmt.Errorf("launch: peer %d: %w", i, err)
			}
		})
	}
	work.Wait()
	return errors.Join(append(errs, network.Close())...)
}

// peer runs one peer.
func (i *inProcess) peer(ctx context.Context, n *node, self elastic.Member, members []elastic.Member, network *mem.Network) error {
	g, err := elastic.Join(ctx, elastic.Config{Endpoint: elastic.Endpoint{Self: self, Network: network.Member(self.ID)},
		Peers: members, Sink: resultSink{i, self.Index}})
	if err != nil {
		return err
	}
	err = n.peer(ctx, g)
	_ = g.Close() // an error changes nothing about a finished job
	return err
}

// resultSink keeps the results that a peer reports.
type resultSink struct {
	run   *inProcess
	index int
}

// Emit implements event.Sink.
func (r resultSink) Emit(e event.Event) {
	if d, ok := e.Body.(event.Done); ok {
		r.run.mu.Lock()
		defer r.run.mu.Unlock()
		r.run.dones = append(r.run.dones, run.DoneReport{Index: r.index, Done: d})
	}
}
