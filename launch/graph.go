package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/rpc"
)

// Program is a graph of nodes that run together: one group of peers that trains, services that
// answer calls, and tasks that run once. The edges are Handles, by which any node calls a service.
//
//	p := launch.NewProgram("mnist")
//	eval := launch.Serve(p, "eval", func(ctx context.Context, r Weights) (Score, error) { ... })
//	p.Peers("train", 3, func(ctx context.Context, g *elastic.Group) error {
//		...
//		score, err := eval.Call(ctx, Weights{...})
//		...
//	})
//	result, err := p.Run(ctx, launch.Processes(launch.Options{}))
//
// Run starts the same program as goroutines of this process, as processes of this host, or over
// hosts. Every process builds the same graph, and runs one node of it: build it of constants and
// the command line alone, before anything else is done. After Launchpad (Yang et al. 2021,
// "Launchpad: A Programming Model for Distributed Machine Learning Research", arXiv 2106.04516).
//
// A Program is built by one goroutine, and run once.
type Program struct {
	name  string
	nodes []*node
	wrong []error // mistakes in declarations, in order

	mu    sync.Mutex
	calls *callers // nil until the program runs
}

// node is one node, with the code that it runs.
type node struct {
	info    nodeInfo
	peer    func(ctx context.Context, g *elastic.Group) error
	task    func(ctx context.Context) error
	methods []rpc.Method
}

// NewProgram returns a program without nodes. The name is for people.
func NewProgram(name string) *Program { return &Program{name: name} }

// NodeOption says how a node runs.
type NodeOption struct{ apply func(*nodeInfo) }

// Restart has a service or a task started again when it fails, at most so many times in all: at
// once after a first failure, and after a pause when it fails again soon, which is backoff at first
// (1 s for 0) and doubles up to a minute. A task fails when it returns an error or its process
// dies, a service when it ends unasked. Without Restart neither is started again. Of peers, which
// join the others again, times adds to Options.Restart.
func Restart(times int, backoff time.Duration) NodeOption {
	return NodeOption{func(n *nodeInfo) { n.Restarts, n.Backoff = times, backoff }}
}

// Group has nodes with the same group run on one host: that of peer 0 if the peers have it, too.
// Nodes without one go where there is room.
func Group(name string) NodeOption { return NodeOption{func(n *nodeInfo) { n.Group = name }} }

// StopAfter has a service stop after other services, which call it until they end. Without it the
// services stop in the reverse order of their declaration, each when the one before has ended.
func StopAfter(services ...string) NodeOption {
	return NodeOption{func(n *nodeInfo) { n.StopAfter = services }}
}

// Peers declares the group that trains: n peers that call f, each with its member of the group,
// which is closed when f returns. Where elrun starts the program its -n is the number of peers. As
// in any job peers come, go and die. A program has one such node.
func (p *Program) Peers(name string, n int, f func(ctx context.Context, g *elastic.Group) error, options ...NodeOption) {
	p.add(&node{info: nodeInfo{Name: name, Kind: kindPeers, Peers: n}, peer: f}, f == nil, options)
}

// Task declares a node that calls f once. A task is over when f returns; the program is over when
// its peers and its tasks are. The context ends when the program is told to stop, or its peers have
// failed.
func (p *Program) Task(name string, f func(ctx context.Context) error, options ...NodeOption) {
	p.add(&node{info: nodeInfo{Name: name, Kind: kindTask}, task: f}, f == nil, options)
}

// add adds a node.
func (p *Program) add(n *node, empty bool, options []NodeOption) {
	n.apply(options)
	if empty {
		p.wrong = append(p.wrong, fmt.Errorf("node %s has no function", n.info.Name))
	}
	p.nodes = append(p.nodes, n)
}

// apply takes over options.
func (n *node) apply(options []NodeOption) {
	for _, o := range options {
		if o.apply != nil {
			o.apply(&n.info)
		}
	}
}

// info describes the program, or returns its first mistake.
func (p *Program) info() (programInfo, error) {
	d := programInfo{Name: p.name}
	for _, n := range p.nodes {
		d.Nodes = append(d.Nodes, n.info)
	}
	err := d.check()
	if len(p.wrong) > 0 {
		err = p.wrong[0]
	}
	if err != nil {
		return d, fmt.Errorf("launch: %w %q: %w", ErrProgram, p.name, err)
	}
	return d, nil
}

// node returns a node by its name, nil if there is none.
func (p *Program) node(name string) *node {
	if i := slices.IndexFunc(p.nodes, func(n *node) bool { return n.info.Name == name }); i >= 0 {
		return p.nodes[i]
	}
	return nil
}

// connect lets handles make calls.
func (p *Program) connect(c *callers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = c
}

// errNotRun: a handle is used outside of a node.
var errNotRun = errors.New("its program does not run: call handles in the functions of nodes")

// caller returns what makes calls.
func (p *Program) caller() (*callers, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		return nil, errNotRun
	}
	return p.calls, nil
}
