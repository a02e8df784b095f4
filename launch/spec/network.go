package spec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/elrun/elrun/elastic"
)

// Network has the options of Run for how peers reach each other. The zero value lets peers listen
// on this host until a ticket opens the job, and choose the fastest path for data.
type Network struct {
	Transport string // auto (also ""), shm, unix, direct or p2p
	// Encrypt is auto (also ""), always or never: whether data between peers is encrypted. Data
	// within one host is never encrypted, and streams of libp2p are always encrypted.
	Encrypt string
	// Relay is members (also "") or never. With members, two peers that cannot connect may use a
	// third member as a relay; with the help of the relay they try to open a direct connection
	// through the routers between them (hole punching). The peers of this launcher may then be
	// relays, too. All three peers must allow it.
	Relay string
	// Listen is the place where peers listen. auto (also "") means the loopback interface until a
	// ticket opens the job, or all interfaces from the start if the peers join by a ticket. local
	// means the loopback interface for good, and all means all interfaces. Otherwise it is a list
	// of addresses, separated by commas: multiaddrs, or IP addresses with an optional port or
	// range of ports (192.0.2.1:7000-7019). Each peer uses two free ports of a range.
	Listen string
	// LAN announces the job on the local network (multicast DNS) once it has a ticket, and looks
	// there for other peers of the job.
	LAN bool
	// PortMap makes the peers ask the router of this host, by NAT-PMP or UPnP, to forward ports to
	// the ports at which they listen on the network.
	PortMap bool
	// Discovery announces the job once it has a ticket, and looks up members by the key of
	// Options.Ticket; nil for none.
	Discovery Discovery
	// Site is the name of the peers' site, such as "berlin"; "" if unknown. A host in Remote.Hosts
	// may have its own Site instead. The network within a site is faster than between sites. If all
	// peers of a job have a site, and there are several, gradients are first reduced within each
	// site and cross between sites only once (hierarchical allreduce).
	Site string
}

// check returns an error for invalid values.
func (n *Network) check() error {
	var listen error
	if n.Listen != "" {
		_, listen = ParseListen(n.Listen)
	}
	return errors.Join(ValidTransport(n.Transport), ValidEncrypt(n.Encrypt), ValidRelay(n.Relay), ValidSite(n.Site), listen)
}

// defaults sets the options that have no value. Callers of this package may leave a value empty,
// but the peers need the word for it.
func (n *Network) defaults() {
	for _, s := range []*string{&n.Transport, &n.Encrypt, &n.Listen} {
		if *s == "" {
			*s = "auto"
		}
	}
	if n.Relay == "" {
		n.Relay = "members"
	}
}

// SendsPlaintext reports whether data between hosts may have neither confidentiality nor integrity.
func (n *Network) SendsPlaintext() bool {
	return n.Encrypt == "never" && slices.Contains([]string{"", "auto", "direct"}, n.Transport)
}

// ValidTransport returns an error for an unknown transport.
func ValidTransport(name string) error {
	return oneOf("transport", name, "", "auto", "shm", "unix", "direct", "p2p")
}

// ValidEncrypt returns an error for an unknown choice of encryption.
func ValidEncrypt(name string) error {
	return oneOf("encryption", name, "", "auto", "always", "never")
}

// ValidRelay returns an error for an unknown choice of relays.
func ValidRelay(name string) error { return oneOf("relay", name, "", "never", "members") }

// oneOf returns an error for a value that is none of the choices. The first choice is "", which
// means the second choice.
func oneOf(what, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return fmt.Errorf("unknown %s %q (%s)", what, value, strings.Join(choices[1:], " or "))
}

// Discovery announces a job on a network, so that newcomers find members that their ticket does not
// name. Jobs are looked up by a key, the public half of the ticket's key, which only members and
// holders of the ticket know. A result is a hint only; newcomers and members authenticate each
// other when they connect.
//
// The launchers of a job announce it if it is open to the network and has tickets: at each change
// of its members or tickets, and every 30 seconds. The end of the job is announced as a job without
// members. A launcher whose peers join by a ticket looks up the ticket's key until one of its peers
// is a member.
type Discovery interface {
	// Announce publishes the members under each of the keys, for some minutes.
	Announce(ctx context.Context, keys []string, members []elastic.Member) error
	// Find returns the members that were last announced under a key. If there are none, the error
	// is nil.
	Find(ctx context.Context, key string) ([]elastic.Member, error)
}
