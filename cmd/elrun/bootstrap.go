package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/elrun/elrun/internal/discovery"
	"github.com/elrun/elrun/launch"
)

// dhtFlags configure the distributed hash table (DHT) in which a job announces its members and
// newcomers look them up.
type dhtFlags struct {
	DHT       bool     `name:"dht" help:"Announce the job, once it has a ticket, in the table (DHT) that the nodes of --bootstrap keep, and find its members there by the ticket."`
	Bootstrap []string `placeholder:"ADDR" sep:"none" help:"A node of your own for --dht, as elrun bootstrap prints it: /ip4/ADDRESS/tcp/PORT/p2p/ID; can be repeated. There are no public ones."`
}

// check returns an error for flags that contradict each other or are invalid. It parses the
// addresses before any peer starts, so that a mistake in them is a usage error.
func (d *dhtFlags) check() error {
	switch {
	case d.DHT && len(d.Bootstrap) == 0:
		return errors.New("--dht needs --bootstrap ADDR: give the address of a node of your own, which elrun bootstrap prints")
	case !d.DHT && len(d.Bootstrap) > 0:
		return errors.New("--bootstrap needs --dht: add --dht, or leave --bootstrap out")
	case !d.DHT:
		return nil
	}
	_, err := discovery.New(d.Bootstrap...)
	return usage("--bootstrap", err)
}

// usage returns the error of a flag with the flag's name in place of the name of package discovery,
// which means nothing to users.
func usage(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", flag, strings.TrimPrefix(err.Error(), "discovery: "))
}

// add sets the DHT in the options of a job.
func (f *dhtFlags) add(o *launch.Options) {
	if !f.DHT {
		return
	}
	if d, err := discovery.New(f.Bootstrap...); err == nil { // the method check has reported an error
		o.Network.Discovery = d
	}
}

// bootstrapCommand is the command elrun bootstrap: a node of the DHT.
type bootstrapCommand struct {
	Listen    string   `placeholder:"ADDRS" help:"IP addresses to listen at, separated by commas, with a port if need be, as in 192.0.2.1:7474 (default: all, port 7474)."`
	Identity  string   `placeholder:"FILE" help:"File with the key of this node, from which its ID comes; made if there is none (default: elrun/bootstrap.key in the folder for settings)."`
	Bootstrap []string `placeholder:"ADDR" sep:"none" help:"Another bootstrap node, with which this node shares its records; can be repeated."`
}

// bootstrapPort is the default TCP port of bootstrap nodes. It is fixed, because the command lines
// of other hosts contain the node's address.
const bootstrapPort = 7474

// Validate implements kong's validation: its errors are usage errors.
func (b *bootstrapCommand) Validate() error {
	if len(b.Bootstrap) > 0 {
		if _, err := discovery.New(b.Bootstrap...); err != nil {
			return usage("--bootstrap", err)
		}
	}
	_, err := parseListen(b.Listen)
	return err
}

// parseListen parses the flag --listen; an empty list stands for all interfaces, of IPv4 and of
// IPv6. It refuses addresses with a zone: a zone is valid on this host only, and the node gives its
// address to other hosts.
func parseListen(list string) ([]netip.AddrPort, error) {
	if list == "" {
		return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), bootstrapPort), netip.AddrPortFrom(netip.IPv6Unspecified(), bootstrapPort)}, nil
	}
	var out []netip.AddrPort
	for text := range strings.SplitSeq(list, ",") {
		// An address without a port gets the default port.
		at, err := netip.ParseAddrPort(text)
		if addr, plain := netip.ParseAddr(text); plain == nil {
			at, err = netip.AddrPortFrom(addr, bootstrapPort), nil
		}
		if err != nil || at.Addr().Zone() != "" {
			return nil, fmt.Errorf("--listen %.80q: want IP addresses, as in 192.0.2.1, 192.0.2.1:7474 or [2001:db8::1]:7474", text)
		}
		out = append(out, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
	}
	return out, nil
}

// Run serves until a signal ends it. It prints the node's addresses on standard output, one per
// line, for the --bootstrap flags of other hosts.
func (b *bootstrapCommand) Run(ctx context.Context, t *terminal) error {
	ctx, release := t.interruptible(ctx)
	defer release()
	if b.Identity == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return fmt.Errorf("%w: name a file by --identity", err)
		}
		// The key is kept, because the ID in the node's address comes from it: a new key would
		// invalidate the address after each restart.
		b.Identity = filepath.Join(dir, "elrun", "bootstrap.key")
	}
	listen, err := parseListen(b.Listen)
	if err != nil {
		return err
	}
	node, err := discovery.Serve(ctx, discovery.Server{Identity: b.Identity, Listen: listen, Others: b.Bootstrap})
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "discovery: "))
	}
	defer node.Close()
	addrs, err := node.Addrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if _, err := fmt.Fprintln(t.stdout, a); err != nil {
			return fmt.Errorf("print the address: %w", err)
		}
	}
	fmt.Fprintln(t.stderr, "elrun: the node runs until a signal ends it; each line above is an address for --bootstrap")
	<-ctx.Done()
	return context.Cause(ctx)
}
