package spec

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"
)

// Options describe the peers that Run starts. The fields at the top say which program runs and how
// many peers it has; the zero values of the parts are the defaults.
type Options struct {
	Program string   // a path, or a name that is looked up in PATH
	Args    []string // without the program's name
	// Self reports that the program is elrun itself: each host of Remote.Hosts runs its own copy of
	// elrun. Program must be its path on this host.
	Self  bool
	Peers int    // number of processes, at least 1; with Remote.Hosts 0 means one for each slot
	Job   string // name of the job; "" derives one from Program
	// Forward has environment variables for the peers, NAME=VALUE each. Peers on Remote.Hosts get
	// no other variables of this process.
	Forward []string
	// Join makes the peers join the running job Job (or the only job of this user on this host),
	// or the job of Ticket.
	Join   bool
	Ticket string

	Network    Network    // how peers reach each other
	Remote     Remote     // peers on other hosts
	Membership Membership // how peers join the group, leave it and are replaced
	Input      Input      // standard input of peers
	Output     Output     // destination of output and events

	// Signals are passed on to the peers; a second signal, at least one second later, kills them.
	// SIGTSTP stops the peers and this process, SIGCONT continues the peers.
	Signals <-chan os.Signal
	// Grace is the time limit for the peers to end after a signal, or after another request to leave;
	// 0 means 10 s.
	Grace time.Duration
}

// ErrOptions reports an option with an invalid value.
var ErrOptions = errors.New("bad option")

// DefaultGrace is the default of Options.Grace.
const DefaultGrace = 10 * time.Second

// Check returns an error for invalid values.
func (o *Options) Check() error {
	switch {
	case (o.Peers < 1 && len(o.Remote.Hosts) == 0) || o.Peers < 0 || o.Peers > MaxPeers:
		return fmt.Errorf("%d peers, want 1 to %d", o.Peers, MaxPeers)
	case len(o.Remote.Hosts) > 0 && o.Join:
		return errors.New("a list of hosts does not go with joining a job: start the peers on each of those hosts, with the ticket of the job")
	}
	if o.Grace < 0 {
		return fmt.Errorf("grace period %v, want more than 0", o.Grace)
	}
	return cmp.Or(o.Remote.check(), o.Membership.check(), o.Network.check(), o.Output.check())
}

// Defaults sets the options that have no value.
func (o *Options) Defaults() {
	o.Output.defaults()
	o.Network.defaults()
	o.Remote.Defaults()
	o.Membership.defaults()
	if len(o.Remote.Hosts) > 1 && o.Network.Listen == ListenAuto {
		o.Network.Listen = ListenAll // the other members are on other hosts
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
}
