package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/internal/private"
)

// Options describe the peers that Run starts and the destination of their output.
type Options struct {
	Program string   // a path, or a name that is looked up in PATH
	Args    []string // without the program's name
	// Self reports that the program is elrun itself: on each of Hosts its copy of elrun is used.
	// Program must be its path on this host.
	Self      bool
	Peers     int    // number of processes, at least 1; with Hosts 0 means one for each of their slots
	Job       string // name of the job; "" derives one from Program
	Transport string // auto (also ""), shm, unix, direct or p2p
	// Encrypt is auto (also ""), always or never: whether data between peers is encrypted. Data
	// within one host never is, and streams of libp2p always are.
	Encrypt string
	// Relay is members (also "") or never. With members, two peers that cannot connect may use a
	// third member as a relay; with its help they try to open a direct connection through the
	// routers between them (hole punching). The peers of this launcher may then be relays, too. All
	// three peers must allow it.
	Relay string
	// Listen is the place where peers listen. auto (also "") means the loopback interface until a
	// ticket opens the job, or all interfaces from the start if the peers join by a ticket. local
	// means the loopback interface for good, and all means all interfaces. Otherwise it is a list
	// of addresses, separated by commas: multiaddrs, or IP addresses with an optional port or
	// range of ports (192.0.2.1:7000-7019, of which each peer uses two free ones).
	Listen string
	// LAN announces the job on the local network (multicast DNS) once it has a ticket, and looks
	// there for other peers of the job.
	LAN bool
	// PortMap makes the peers ask the router of this host, by NAT-PMP or UPnP, to forward ports to
	// the ports at which they listen on the network.
	PortMap bool
	// Discovery announces the job once it has a ticket, and looks up members by the key of Ticket;
	// nil for none.
	Discovery Discovery

	// Site is the name of the peers' site, such as "berlin"; "" if unknown. A host in Hosts may
	// have its own Site instead. The network within a site is faster than between sites. If all
	// peers of a job have a site, and there are several, gradients are first reduced within each
	// site and cross between sites only once (hierarchical allreduce).
	Site string

	// Hosts are the hosts of the peers. Each host gets as many peers as it has slots, up to Peers
	// in all. Without Hosts all peers run on this host.
	Hosts []Host
	// SSH is the command, with its first arguments, that connects to hosts; "" means ssh.
	SSH string
	// Srun connects to hosts by srun in place of ssh: they belong to the Slurm job in which this
	// process runs.
	Srun bool
	// ConnectTimeout is the time limit for a host to become ready to start peers. The time to copy
	// a program does not count. 0 means 10 s.
	ConnectTimeout time.Duration
	// Copy copies elrun and the program to hosts that lack them. Without Copy, elrun must be in
	// PATH on the host, or have the same path as on this host, and the program is found by its
	// name.
	Copy bool
	// Dir is the working folder of peers on Hosts; "" for the home folder.
	Dir string
	// Forward has environment variables for the peers, NAME=VALUE each. Peers on Hosts get no
	// other variables of this process.
	Forward []string
	// Detach lets peers on Hosts continue after the death of this launcher.
	Detach bool

	// Join makes the peers join the running job Job (or the only job of this user on this host),
	// or the job of Ticket.
	Join   bool
	Ticket string
	// JoinTimeout is how long a peer that gets no answer looks for a member that admits it; 0 means
	// 1 min.
	JoinTimeout time.Duration

	MinPeers      int           // members below which the group waits; 0 means 1
	Quorum        string        // majority (also "") or any: which part may go on after a loss
	RejoinTimeout time.Duration // how long the group waits when too few are left; 0 means 10 min
	Restart       int           // number of restarts of crashed peers, in all
	// StateRate is the largest rate at which each peer sends state to newcomers, in bytes per
	// second; 0 means no limit.
	StateRate int

	Stdout, Stderr io.Writer // nil discards
	Live           bool      // Stderr is a terminal that shows a progress line
	Plain          bool      // no prefix on lines of output
	// Label names this launcher in the prefix of lines of output, as in [0@Label]; "" for none.
	Label string
	// Shared means that several launchers of the job share the output. The launcher whose peer has
	// rank 0 reports the progress and prints the job's last line.
	Shared bool
	Events io.Writer // gets the events of all peers, one JSON object a line; nil for none
	LogDir string    // gets a file INDEX.log for each peer in addition to the output; "" for none

	// Signals are passed on to the peers; a second one, at least one second later, kills them.
	// SIGTSTP stops the peers and this process, SIGCONT continues the peers.
	Signals <-chan os.Signal
	// Grace is the time limit for the peers to end after a signal; 0 means 10 s.
	Grace time.Duration
}

// ErrOptions reports an option with an invalid value.
var ErrOptions = errors.New("bad option")

const (
	// defaultGrace is the default of Options.Grace.
	defaultGrace = 10 * time.Second
	// defaultConnect is the default of Options.ConnectTimeout.
	defaultConnect = 10 * time.Second
	// defaultJoin is the default of Options.JoinTimeout.
	defaultJoin = time.Minute
	// defaultRejoin is the default of Options.RejoinTimeout.
	defaultRejoin = 10 * time.Minute
)

// complete checks the options, sets defaults and returns the path of the program.
func (o *Options) complete(ctx context.Context) (path string, err error) {
	if err := o.check(); err != nil {
		return "", fmt.Errorf("launch: %w: %w", ErrOptions, err)
	}
	path, err = findProgram(o.Program)
	if err != nil && (len(o.Hosts) == 0 || o.Copy) {
		return "", err // on other hosts the program may exist
	}
	if o.Join {
		err = o.find(ctx)
	} else {
		err = o.name()
	}
	if err != nil {
		return "", err
	}
	if o.LogDir != "" {
		if err := private.MkdirAll(o.LogDir); err != nil {
			return "", fmt.Errorf("launch: log directory: %w", err)
		}
	}
	o.defaults()
	return path, nil
}

// check returns an error for invalid values.
func (o *Options) check() error {
	choices := []error{
		validTransport(o.Transport), validEncrypt(o.Encrypt), validRelay(o.Relay),
		validSite(o.Site), oneOf("quorum", o.Quorum, "", "majority", "any"),
	}
	if o.Listen != "" {
		_, err := parseListen(o.Listen)
		choices = append(choices, err)
	}
	// Numbers are checked here, names and lists above.
	switch {
	case (o.Peers < 1 && len(o.Hosts) == 0) || o.Peers < 0 || o.Peers > maxPeers:
		return fmt.Errorf("%d peers, want 1 to %d", o.Peers, maxPeers)
	case len(o.Hosts) == 0 && (o.Copy || o.Detach || o.Dir != "" || o.SSH != "" || o.Srun):
		return errors.New("there is no list of hosts, but an option that needs one (copy, detach, dir, ssh or srun): name hosts, or leave that option out")
	case len(o.Hosts) > 0 && o.Join:
		return errors.New("a list of hosts does not go with joining a job: start the peers on each of those hosts, with the ticket of the job")
	case o.MinPeers < 0 || o.MinPeers > maxMembers:
		return fmt.Errorf("minimum of %d peers, want 1 to %d", o.MinPeers, maxMembers)
	case o.Restart < 0:
		return fmt.Errorf("limit of %d restarts, want 0 or more", o.Restart)
	case o.StateRate < 0:
		return fmt.Errorf("state rate of %d bytes a second, want more than 0", o.StateRate)
	case o.ConnectTimeout < 0:
		return fmt.Errorf("connect timeout %v, want more than 0", o.ConnectTimeout)
	case o.JoinTimeout < 0:
		return fmt.Errorf("join timeout %v, want more than 0", o.JoinTimeout)
	case o.RejoinTimeout < 0:
		return fmt.Errorf("rejoin timeout %v, want more than 0", o.RejoinTimeout)
	}
	return errors.Join(choices...)
}

// validTransport returns an error for an unknown transport.
func validTransport(name string) error {
	return oneOf("transport", name, "", "auto", "shm", "unix", "direct", "p2p")
}

// validEncrypt returns an error for an unknown choice of encryption.
func validEncrypt(name string) error {
	return oneOf("encryption", name, "", "auto", "always", "never")
}

// validRelay returns an error for an unknown choice of relays.
func validRelay(name string) error { return oneOf("relay", name, "", "never", "members") }

// oneOf returns an error for a value that is none of the choices. The first choice is "", which
// means the second.
func oneOf(what, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return fmt.Errorf("unknown %s %q (%s)", what, value, strings.Join(choices[1:], " or "))
}

// defaults sets the options that have no value.
func (o *Options) defaults() {
	for _, w := range []*io.Writer{&o.Stdout, &o.Stderr} {
		if *w == nil {
			*w = io.Discard
		}
	}
	// The empty value is valid for callers of this package; the peers get a word.
	for _, s := range []*string{&o.Transport, &o.Encrypt, &o.Listen} {
		if *s == "" {
			*s = "auto"
		}
	}
	if len(o.Hosts) > 1 && o.Listen == listenAuto {
		o.Listen = listenAll // the other members are on other hosts
	}
	if o.Relay == "" {
		o.Relay = "members"
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = defaultConnect
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.JoinTimeout == 0 {
		o.JoinTimeout = defaultJoin
	}
	if o.RejoinTimeout == 0 {
		o.RejoinTimeout = defaultRejoin
	}
	o.MinPeers = max(1, o.MinPeers)
}

// name makes a name for the job, or checks that the given name is free.
func (o *Options) name() error {
	if o.Job == "" {
		o.Job = jobName(o.Program, strings.ToLower(rand.Text()[:5]))
		return nil
	}
	if err := validJob(o.Job); err != nil {
		return fmt.Errorf("launch: %w: %w", ErrOptions, err)
	}
	// A second job of the same name is not detected if both start at the same time, or if the list
	// cannot be read. The only effect is that the status of both is mixed.
	used, _ := listControls()
	if slices.ContainsFunc(used, func(n socketName) bool { return n.job == o.Job }) {
		return fmt.Errorf("launch: %w: a job named %s is running already", ErrOptions, o.Job)
	}
	return nil
}
