package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/elrun/elrun/launch"
)

// sshFlags name the hosts of a job and the command to reach them. Hosts and Hostfile are pointers,
// so that an empty value, which is a mistake, differs from a missing flag.
type sshFlags struct {
	Hosts          *string       `name:"hosts" short:"H" placeholder:"A:2,B" help:"Hosts to be reached by ssh, each with its number of peers (default: 1)."`
	Hostfile       *string       `placeholder:"FILE" help:"Take the hosts from a file: a line NAME slots=N for each, as mpirun has it, and site=NAME if need be."`
	Copy           bool          `help:"Copy elrun, and the program, to hosts that lack them (into ~/.cache/elrun)."`
	SSH            string        `name:"ssh" placeholder:"CMD" help:"Command in place of ssh, as in 'ssh -F FILE'."`
	ConnectTimeout time.Duration `default:"10s" placeholder:"D" help:"How long a host may take until it is ready (${default})."`
}

// hostFlags configure peers on other hosts.
type hostFlags struct {
	sshFlags
	Export []string `name:"export" short:"x" sep:"none" placeholder:"VAR" help:"Give the peers an environment variable: NAME, as it is here, or NAME=VALUE. May be repeated."`
	Dir    string   `placeholder:"DIR" help:"Working folder on the hosts (default: this one)."`
	Detach bool     `help:"Let the peers on the hosts go on if this elrun dies."`
	DryRun bool     `help:"Print for each host which command lines would run here and there. Nothing is started, and no host is connected."`
}

// hosts returns the hosts of -H or of --hostfile; nil if there is neither.
func (s *sshFlags) hosts() ([]launch.Host, error) {
	switch {
	case s.Hosts != nil && s.Hostfile != nil:
		return nil, errors.New("-H does not go with --hostfile: name the hosts in one way")
	case s.Hosts != nil: // ParseHosts refuses "", which may come from an unset variable
		return launch.ParseHosts(*s.Hosts)
	case s.Hostfile == nil:
		return nil, nil
	}
	file, err := os.Open(*s.Hostfile)
	if err != nil {
		return nil, fmt.Errorf("hostfile: %w", err)
	}
	defer file.Close()
	hosts, err := launch.ReadHostfile(file)
	if err != nil {
		return nil, fmt.Errorf("hostfile %s: %w", *s.Hostfile, err)
	}
	return hosts, nil
}

// exported returns the environment variables of --export, each as NAME=VALUE.
func (h *hostFlags) exported() ([]string, error) {
	var out []string
	for _, v := range h.Export {
		// NAME=VALUE sets the value on the hosts whether or not the variable is set here.
		name, _, given := strings.Cut(v, "=")
		value, set := os.LookupEnv(name)
		switch {
		case name == "":
			return nil, fmt.Errorf("-x %s: want a variable's NAME, or NAME=VALUE", v)
		case !given && !set:
			return nil, fmt.Errorf("-x %s: the variable is not set here; give it a value by -x %s=VALUE", v, v)
		case !given:
			v = name + "=" + value
		}
		out = append(out, v)
	}
	return out, nil
}

// add sets the flags in the options of a job. peers is the number of peers over all hosts, 0 if not
// given. Without hosts it does not set Options.Peers, which then is the number of peers on this
// host.
func (h *hostFlags) add(o *launch.Options, hosts []launch.Host, env []string, peers int) {
	o.Remote = launch.Remote{Hosts: hosts, SSH: h.SSH, ConnectTimeout: h.ConnectTimeout, Copy: h.Copy, Dir: h.Dir, Detach: h.Detach}
	o.Forward = env
	if len(hosts) == 0 {
		return
	}
	o.Peers = peers
	if o.Remote.Dir == "" {
		o.Remote.Dir, _ = os.Getwd() // if this fails the peers start in the home folder of the host
	}
}

// agentCommand is the hidden command elrun agent, which a launcher starts on another host.
type agentCommand struct{}

// Run serves the launcher, which sends its requests on standard input and reads the answers from
// standard output, as ssh connects them.
func (a *agentCommand) Run(ctx context.Context, t *terminal) error {
	return launch.ServeHost(ctx, t.stdin, t.stdout, t.signals)
}
