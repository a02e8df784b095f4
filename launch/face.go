package launch

import (
	"context"
	"io"
	"os"

	hostagent "github.com/elrun/elrun/launch/internal/agent"
	"github.com/elrun/elrun/launch/internal/doctor"
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
	return hostagent.Serve(ctx, in, out, signals, doctor.Host)
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
