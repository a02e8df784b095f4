package main

import "github.com/elrun/elrun/launch"

// networkFlags configure where peers listen and how data travels between them. launch.Run checks
// their values.
type networkFlags struct {
	Listen    string `default:"auto" placeholder:"ADDRS" help:"Where peers listen: auto (this host only, until the job has a ticket), local (this host only), all (all interfaces), or addresses separated by commas, each with a port or range of ports if need be, as in 192.0.2.1:7000-7019."`
	LAN       bool   `name:"lan" help:"Let the job be found on the local network (multicast DNS) once it has a ticket, and look for its peers there."`
	PortMap   bool   `help:"Ask the router of this host, by NAT-PMP or UPnP, to forward ports to these peers: for hosts at home, whose routers block other connections from outside."`
	Site      string `placeholder:"NAME" help:"Site of these peers, as in berlin: if all peers of the job name a site, sums cross between sites only once. site=NAME in a hostfile takes precedence."`
	Transport string `enum:"auto,shm,unix,direct,p2p" default:"auto" help:"How data travels: auto (the best of these), shm (shared memory), unix (Unix sockets), direct (TCP connections of the peers) or p2p (libp2p streams)."`
	Encrypt   string `enum:"auto,always,never" default:"auto" help:"Encrypt data between hosts: auto, always or never. Streams of libp2p are always encrypted, data within a host never."`
	Relay     string `enum:"never,members" default:"members" help:"Whether two peers that cannot connect directly, for example behind routers, may use a third as relay and punch holes with its help: members, or never. All three must allow it."`
}

// network returns the options of the network of a job.
func (n *networkFlags) network() launch.Network {
	return launch.Network{Listen: n.Listen, LAN: n.LAN, PortMap: n.PortMap, Site: n.Site,
		Transport: n.Transport, Encrypt: n.Encrypt, Relay: n.Relay}
}
