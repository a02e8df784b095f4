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

// Options say what Run starts and where its output goes.
type Options struct {
	Program string   // a path, or a name to be found in PATH
	Args    []string // without the program's name
	// Self says that the program is this one, and on each of Hosts the elrun that serves there.
	// Program must be its path here.
	Self      bool
	Peers     int    // processes, at least 1; with Hosts 0 for one in each of their slots
	Job       string // name of the job; "" makes one from Program
	Transport string // auto (also ""), shm, unix, direct or p2p
	// Encrypt is auto (also ""), always or never: whether data between peers is encrypted.
	// What stays within one host never is, and streams of libp2p always are.
	Encrypt string
	// Relay is members (also "") or never: whether two peers that cannot connect reach each
	// other by way of a third, and look from there for a direct way through the routers between
	// them; and whether these peers may be such a way. All three must allow it.
	Relay string
	// Listen is where peers listen: auto (also "") on the loopback interface until the job
	// is opened by a ticket, or from the start on all interfaces if they join by one; local
	// on the loopback interface for good; all on all interfaces; or at a list of addresses,
	// separated by commas: IP addresses, with a port or a range of them if need be
	// (192.0.2.1:7000-7019, of which each peer takes two free ones), or multiaddrs.
	Listen string
	// LAN lets the job be found on the local network (multicast DNS) once it has a ticket,
	// and looks for others of it there.
	LAN bool
	// PortMap has the peers ask the router of this host, by NAT-PMP or UPnP, to pass on what comes
	// from elsewhere to the ports at which they listen on the network.
	PortMap bool
	// Discovery is where the job is announced once it has a ticket, and where its members are
	// looked for by the key of Ticket; nil for nowhere.
	Discovery Discovery

	// Site names the place where these peers are, but for those of Hosts that name their own, as
	// in "berlin": within one the network is faster than between two. When all peers of a job
	// have one, and there are several, gradients are summed up at each site first, and cross
	// between sites once. "" if it is not known.
	Site string

	// Hosts are where the peers run, each host gets as many as it has slots, up to Peers in
	// all; none for this host alone.
	Hosts []Host
	// SSH is the command, with its first arguments, by which hosts are reached: "" for ssh.
	SSH string
	// Srun has hosts reached by srun in place of ssh: they belong to the job of Slurm in which
	// this process runs.
	Srun bool
	// ConnectTimeout is how long a host may take until it is ready to start peers, without the
	// time to copy a program; 0 means 10 s.
	ConnectTimeout time.Duration
	// Copy has elrun and the program copied to hosts that lack them. Otherwise elrun is found
	// there in PATH, or at the path that it has here, and the program as its name says.
	Copy bool
	// Dir is the working folder of peers on Hosts; "" for their home.
	Dir string
	// Forward are environment variables for the peers, NAME=VALUE each. Peers on Hosts get no
	// others of this process.
	Forward []string
	// Detach lets peers on Hosts go on when this launcher has died.
	Detach bool

	// Join makes the peers join the running job Job (or the only one of this user on this
	// host), or the one that Ticket is for.
	Join   bool
	Ticket string
	// JoinTimeout is how long a peer looks for a member that lets it in, without an answer from
	// one; 0 means 1 min.
	JoinTimeout time.Duration

	MinPeers      int           // the group waits when fewer are left; 0 means 1
	Quorum        string        // majority (also "") or any: who may go on after a loss
	RejoinTimeout time.Duration // how long the group waits when too few are left; 0 means 10 min
	Restart       int           // crashed peers are started again, so many times in all
	// StateRate is how many bytes a second each peer hands out at most of the state that
	// those who join copy; 0 means no limit.
	StateRate int

	Stdout, Stderr io.Writer // nil discards
	Live           bool      // Stderr is a terminal: show a progress line there
	Plain          bool      // no prefix on lines of output
	// Label names this launcher in the prefix of lines of output, as in [0@Label]; "" for none.
	Label string
	// Shared: several launchers of the job share the output. The one whose peer has rank 0 tells
	// how the job fares, and prints its last line.
	Shared bool
	Events io.Writer // takes the events of all peers, one JSON object a line; nil for none
	LogDir string    // gets a file INDEX.log for each peer, besides the output; "" for none

	// Signals are passed on to the peers; a second one, a second later or more, kills them.
	// SIGTSTP stops the peers and this process, SIGCONT lets the peers go on.
	Signals <-chan os.Signal
	// Grace is how long the peers may take to end after a signal; 0 means 10 s.
	Grace time.Duration
}

// ErrOptions: an option has a value that cannot be used.
var ErrOptions = errors.New("bad option")

const (
	// defaultGrace is the Grace of Options that name none.
	defaultGrace = 10 * time.Second
	// defaultConnect is the ConnectTimeout of Options that name none.
	defaultConnect = 10 * time.Second
	// defaultJoin is the JoinTimeout of Options that name none.
	defaultJoin = time.Minute
	// defaultRejoin is the RejoinTimeout of Options that name none.
	defaultRejoin = 10 * time.Minute
)

// complete checks the options, fills in defaults and finds the program.
func (o *Options) complete(ctx context.Context) (path string, err error) {
	if err := o.check(); err != nil {
		return "", fmt.Errorf("launch: %w: %w", ErrOptions, err)
	}
	path, err = findProgram(o.Program)
	if err != nil && (len(o.Hosts) == 0 || o.Copy) {
		return "", err // elsewhere the program may be there
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

// check reports values that cannot be used.
func (o *Options) check() error {
	choices := []error{
		validTransport(o.Transport), validEncrypt(o.Encrypt), validRelay(o.Relay),
		validSite(o.Site), oneOf("quorum", o.Quorum, "", "majority", "any"),
	}
	if o.Listen != "" {
		_, err := parseListen(o.Listen)
		choices = append(choices, err)
	}
	switch {
	case (o.Peers < 1 && len(o.Hosts) == 0) || o.Peers < 0 || o.Peers > maxPeers:
		return fmt.Errorf("%d peers, want 1 to %d", o.Peers, maxPeers)
	case len(o.Hosts) == 0 && (o.Copy || o.Detach || o.Dir != "" || o.SSH != "" || o.Srun):
		return errors.New("options for hosts, and no host: name hosts, or leave them out")
	case len(o.Hosts) > 0 && o.Join:
		return errors.New("peers on other hosts cannot join a job: start them there with its ticket")
	case o.MinPeers < 0 || o.MinPeers > maxMembers:
		return fmt.Errorf("at least %d peers, want 1 to %d", o.MinPeers, maxMembers)
	case o.Restart < 0:
		return fmt.Errorf("%d restarts, want none or more", o.Restart)
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

// validTransport reports a transport that there is not.
func validTransport(name string) error {
	return oneOf("transport", name, "", "auto", "shm", "unix", "direct", "p2p")
}

// validEncrypt reports a choice of encryption that there is not.
func validEncrypt(name string) error {
	return oneOf("encryption", name, "", "auto", "always", "never")
}

// validRelay reports a choice of relays that there is not.
func validRelay(name string) error { return oneOf("relay", name, "", "never", "members") }

// oneOf reports a value that is none of the choices, the first of which is "" for the
// second.
func oneOf(what, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return fmt.Errorf("unknown %s %q (%s)", what, value, strings.Join(choices[1:], " or "))
}

// defaults fills in what was left open.
func (o *Options) defaults() {
	for _, w := range []*io.Writer{&o.Stdout, &o.Stderr} {
		if *w == nil {
			*w = io.Discard
		}
	}
	for _, s := range []*string{&o.Transport, &o.Encrypt, &o.Listen} {
		if *s == "" {
			*s = "auto"
		}
	}
	if len(o.Hosts) > 1 && o.Listen == listenAuto {
		o.Listen = listenAll // the others are elsewhere
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

// name makes the job's name, or checks that the given one is free.
func (o *Options) name() error {
	if o.Job == "" {
		o.Job = jobName(o.Program, strings.ToLower(rand.Text()[:5]))
		return nil
	}
	if err := validJob(o.Job); err != nil {
		return fmt.Errorf("launch: %w: %w", ErrOptions, err)
	}
	// Two jobs that start under one name at the same time are not noticed, nor is any
	// where the list cannot be read: then status mixes them, and nothing worse.
	used, _ := listControls()
	if slices.ContainsFunc(used, func(n socketName) bool { return n.job == o.Job }) {
		return fmt.Errorf("launch: %w: a job named %s is running already", ErrOptions, o.Job)
	}
	return nil
}
