package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/rpc"
	"github.com/elrun/elrun/launch/internal/wire"
)

// Program is a graph of nodes that run together, see launch.Program.
type Program struct {
	name  string
	nodes []*node
	errs  []error // mistakes in declarations, in their order

	// mu guards calls, which nodes read while the program begins.
	mu    sync.Mutex
	calls *callers // nil until the program runs
}

// node is a node of the graph and the functions that it runs. Exactly one of peer, task and
// methods is set, according to the kind.
type node struct {
	// info is the part of the node that the launcher gets to know.
	info    wire.NodeInfo
	peer    func(ctx context.Context, g *elastic.Group) error
	task    func(ctx context.Context) error
	methods []rpc.Method
}

// NewProgram is launch.NewProgram.
func NewProgram(name string) *Program { return &Program{name: name} }

// NodeOption is an option of a node.
type NodeOption struct{ apply func(*wire.NodeInfo) }

// Restart is launch.Restart.
func Restart(times int, backoff time.Duration) NodeOption {
	return NodeOption{func(n *wire.NodeInfo) { n.Restarts, n.Backoff = times, backoff }}
}

// Group is launch.Group.
func Group(name string) NodeOption { return NodeOption{func(n *wire.NodeInfo) { n.Group = name }} }

// StopAfter is launch.StopAfter.
func StopAfter(services ...string) NodeOption {
	return NodeOption{func(n *wire.NodeInfo) { n.StopAfter = services }}
}

// Peers declares the group that trains: n peers that call f, each with its own elastic.Group. The
// group is closed when f returns. If elrun starts the program, its flag -n gives the number of
// peers. As in any job, peers may join, leave and die. A program has exactly one such node.
func (p *Program) Peers(name string, n int, f func(ctx context.Context, g *elastic.Group) error, options ...NodeOption) {
	p.add(&node{info: wire.NodeInfo{Name: name, Kind: wire.KindPeers, Peers: n}, peer: f}, f == nil, options)
}

// Task declares a node that calls f once and ends when f returns. The program ends when its peers
// and its tasks have ended. The context of f ends when the program is told to stop or its peers
// have failed.
func (p *Program) Task(name string, f func(ctx context.Context) error, options ...NodeOption) {
	p.add(&node{info: wire.NodeInfo{Name: name, Kind: wire.KindTask}, task: f}, f == nil, options)
}

// add adds a node. empty reports that the node has no function, which is a mistake.
func (p *Program) add(n *node, empty bool, options []NodeOption) {
	n.apply(options)
	if empty {
		p.errs = append(p.errs, fmt.Errorf("node %s has no function", n.info.Name))
	}
	p.nodes = append(p.nodes, n)
}

// apply applies options to the node.
func (n *node) apply(options []NodeOption) {
	for _, o := range options {
		if o.apply != nil {
			o.apply(&n.info)
		}
	}
}

// info returns the description of the program, or its first mistake as an error.
func (p *Program) info() (wire.ProgramInfo, error) {
	d := wire.ProgramInfo{Name: p.name}
	for _, n := range p.nodes {
		d.Nodes = append(d.Nodes, n.info)
	}
	err := d.Check()
	// Return a mistake in a declaration first, because the check of the whole graph may fail only
	// because of this mistake.
	if len(p.errs) > 0 {
		err = p.errs[0]
	}
	if err != nil {
		return d, fmt.Errorf("launch: %w %q: %w", ErrProgram, p.name, err)
	}
	return d, nil
}

// node returns the node with a name, or nil.
func (p *Program) node(name string) *node {
	if i := slices.IndexFunc(p.nodes, func(n *node) bool { return n.info.Name == name }); i >= 0 {
		return p.nodes[i]
	}
	return nil
}

// connect sets the callers by which the handles of the program make calls.
func (p *Program) connect(c *callers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = c
}

// errNotRun reports that a handle is used outside of a node.
var errNotRun = errors.New("its program does not run: call handles in the functions of nodes")

// caller returns the callers of the running program, or errNotRun.
func (p *Program) caller() (*callers, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		return nil, errNotRun
	}
	return p.calls, nil
}

// ErrProgram reports a mistake in a program. No node was started.
var ErrProgram = errors.New("bad program")
