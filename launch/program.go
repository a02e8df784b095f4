package launch

import (
	"context"
	"time"

	"github.com/elrun/elrun/launch/program"
)

// Errors of programs. Compare them with errors.Is.
var (
	// ErrProgram reports a mistake in a program. No node was started.
	ErrProgram = program.ErrProgram
	// ErrHandler reports that the function of a service returned an error. The text of that error
	// is kept, but not the errors that it wraps.
	ErrHandler = program.ErrHandler
	// ErrUnreachable reports that a call did not reach its service or that its answer was lost. The
	// service has ended for good, was not restarted before the end of the context, or died during
	// the call. In the last case it is unknown whether the call was carried out.
	ErrUnreachable = program.ErrUnreachable
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
// Run runs the same program as goroutines of this process, as processes of this host, or on
// several hosts. Every process builds the same graph and runs one node of it. So build the graph
// from constants and the command line alone, before anything else. The design follows Launchpad
// (Yang et al. 2021, "Launchpad: A Programming Model for Distributed Machine Learning Research",
// arXiv 2106.04516).
//
// A Program is built by one goroutine, and run once.
type Program = program.Program

// NodeOption is an option of a node.
type NodeOption = program.NodeOption

// Type is a way to run the nodes of a program.
type Type = program.Type

// Handle calls a service of a program, from any node. It is a small value; a copy calls the same
// service.
//
// Requests and results are copied in all launch types, by CBOR (RFC 8949): exported fields of
// structs are copied, pointers become pointers to copies, and a type with a binary form
// (encoding.BinaryMarshaler) uses this form. The encoded request and result are at most 64 MiB
// long.
type Handle[Req, Resp any] = program.Handle[Req, Resp]

// Future is the result of a call in the background. It is safe for concurrent use.
type Future[Resp any] = program.Future[Resp]

// NewProgram returns a program without nodes. The name appears in messages.
func NewProgram(name string) *Program { return program.NewProgram(name) }

// Restart restarts a failed service or task. times is the largest number of restarts. The first
// restart is immediate. If the node soon fails again, the next restart waits for the time backoff
// (0 means 1 s), and this wait doubles up to a minute (exponential backoff). A task fails when it
// returns an error or its process dies; a service fails when it ends before it was told to stop.
// Without Restart neither is restarted. For peers times is added to Membership.Restart; a restarted
// peer joins the group again.
func Restart(times int, backoff time.Duration) NodeOption { return program.Restart(times, backoff) }

// Group places nodes with the same group name on one host; if the peers have that group name, it is
// the host of peer 0. A node without a group runs on the host with the fewest peers per slot.
func Group(name string) NodeOption { return program.Group(name) }

// StopAfter stops a service only after the named services, which may call it until they end.
// Without StopAfter the services stop in the reverse order of their declaration, each when the
// previous service has ended.
func StopAfter(services ...string) NodeOption { return program.StopAfter(services...) }

// Serve declares a service and returns the handle to call it. f must be safe for concurrent calls.
// Its context ends with the caller's deadline, when the caller stops waiting, and when the service
// is told to stop. A panic in f ends the process of the service, as in any program.
//
// A name NODE/METHOD declares one of several methods of a service. The methods run in one process
// and may share variables, which no other node may use. The options of all methods apply.
func Serve[Req, Resp any](p *Program, name string, f func(ctx context.Context, r Req) (Resp, error), options ...NodeOption) Handle[Req, Resp] {
	return program.Serve(p, name, f, options...)
}

// Goroutines runs all nodes in this process, the peers over a network in memory; this works in a
// synctest bubble as well. Differences from Processes: nodes share the memory of this process, a
// panic ends all of them, and peers are not restarted.
func Goroutines() Type { return program.Goroutines() }

// Processes runs each node as a process, as Run runs peers. Five options have defaults here:
// Program and Args are this program and its arguments, Peers is the number that the program
// declares, Stdout and Stderr are the outputs of this process, and Signals receives SIGINT and
// SIGTERM. With Hosts the nodes run on these hosts, and Copy copies the program there. In a
// process that was started in this way, or by elrun, Program.Run runs the node of that process,
// whatever the options are.
func Processes(o Options) Type { return program.Processes(o) }
