package launch

import (
	"context"
	"io"
	"os"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/agent"
	"github.com/elrun/elrun/launch/internal/doctor"
	"github.com/elrun/elrun/launch/internal/inpeer"
	"github.com/elrun/elrun/launch/internal/run"
	"github.com/elrun/elrun/launch/spec"
)

// What users ask for. Package spec explains the fields.
type (
	Options    = spec.Options
	Network    = spec.Network
	Discovery  = spec.Discovery
	Remote     = spec.Remote
	Host       = spec.Host
	Membership = spec.Membership
	Input      = spec.Input
	Output     = spec.Output
	Hook       = spec.Hook
	Invitation = spec.Invitation
)

// What users get. Package spec explains the fields.
type (
	Result       = spec.Result
	Exit         = spec.Exit
	Status       = spec.Status
	Progress     = spec.Progress
	Balanced     = spec.Balanced
	MemberStatus = spec.MemberStatus
	PeerPath     = spec.PeerPath
	Ended        = spec.Ended
	Stopped      = spec.Stopped
	Ticket       = spec.Ticket
	Check        = spec.Check
	Level        = spec.Level
	HostPlan     = spec.HostPlan
)

// The levels of a Check.
const (
	OK   = spec.OK
	Warn = spec.Warn
	Fail = spec.Fail
)

// ErrOptions reports an option with an invalid value.
var ErrOptions = spec.ErrOptions

// ParseHosts parses the hosts of Remote.Hosts, see spec.ParseHosts.
func ParseHosts(list string) ([]Host, error) { return spec.ParseHosts(list) }

// ParseHook parses a hook of Output.Hooks, see spec.ParseHook.
func ParseHook(text string) (Hook, error) { return spec.ParseHook(text) }

// ReadHostfile reads the hosts of Remote.Hosts from a file, see spec.ReadHostfile.
func ReadHostfile(r io.Reader) ([]Host, error) { return spec.ReadHostfile(r) }

// StatusQuorum is the exit status of a launcher, and of a peer, whose group gave up because too few
// peers were left.
const StatusQuorum = spec.StatusQuorum

// ServeHost runs an agent on this host for a launcher on another host: it starts the peers that the
// launcher orders, and passes on their messages and output. in and out are the connection to the
// launcher. ServeHost returns when the launcher has ended and no peer is left.
//
// The end of the input in means that the launcher has ended. Unless the launcher runs with detach,
// the peers then leave their group, and the agent kills the peers that have not ended after a grace
// period. The agent passes signals on to the peers. If ServeHost returns because the launcher was
// silent for too long, a goroutine may still be reading from in.
func ServeHost(ctx context.Context, in io.Reader, out io.Writer, signals <-chan os.Signal) error {
	return agent.Serve(ctx, in, out, signals, doctor.Host)
}

// Doctor tests everything that jobs use on this host. The checks are independent of each other; a
// check that does not apply to this system is left out. The end of ctx makes the unfinished checks
// fail.
func Doctor(ctx context.Context) []Check { return doctor.Host(ctx) }

// DoctorHosts runs Doctor on each of r.Hosts and tests whether each host can connect to every other
// host. Srun, Dir and Detach have no effect. An unusable host is a failed Check; an error means
// wrong options.
func DoctorHosts(ctx context.Context, r Remote) ([]Check, error) { return doctor.Hosts(ctx, r) }

// DoctorMember tests the connection from this host to a running job, without joining it. target is
// the HOST:PORT of a listening member, or a ticket, whose addresses are all tested. An unreachable
// member is a failed Check; an error means a wrong target.
func DoctorMember(ctx context.Context, target string) ([]Check, error) {
	return doctor.Member(ctx, target)
}

// Init makes this process a member of the job of the launcher that started it, or without a
// launcher a group of one, whose progress and result are printed as elrun prints them: lines on
// standard error, and the last line of standard output, when the group is closed. At the start of a job it returns when all peers have joined. A peer that
// joins a running job is admitted when its loop begins (Group.Steps, Sessions.Next); the loop also
// waits for missing peers if a job starts with fewer peers than its minimum. ctx bounds only Init. The group lives
// until its Close, which also flushes its events to the launcher. Call Init once, and early: until
// then the launcher does not know that the program is a peer.
//
// Under a launcher, SIGTERM makes the group leave: the loop ends with elastic.ErrLeft at the
// next boundary between two steps, and the program ends by itself. Its exit status does not count then:
// see Exit.Asked. A second SIGTERM, at least one second later, has its usual effect. A program that
// handles the signal itself (signal.Notify) receives it as well.
//
// When the launcher dies, the group leaves in the same way, and the process exits at most 1.5 s
// later. An error that wraps ErrLauncher means that the launcher gave up, for example because
// another peer's program ended before it joined. One that wraps elastic.ErrFinished means that the job had
// finished before this peer came; the exit status of the program does not count then.
func Init(ctx context.Context) (*elastic.Group, error) { return inpeer.Init(ctx) }

// Launched reports whether a launcher started this process. Init then joins a job; otherwise it
// returns a group of one.
func Launched() bool { return inpeer.Launched() }

// ErrLauncher reports that the launcher died or told this peer to give up.
var ErrLauncher = inpeer.ErrLauncher

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
func Run(ctx context.Context, o Options) (Result, error) { return run.Run(ctx, o) }

// DryRun returns what Run would do for each of o.Remote.Hosts. It connects to nothing and starts nothing. It refuses the options that
// Run refuses before it connects.
func DryRun(ctx context.Context, o Options) ([]HostPlan, error) { return run.DryRun(ctx, o) }
