package main

import "github.com/elrun/elrun/launch"

// networkFlags configure where peers listen and how data travels between them. launch.Run checks
// their values.
type networkFlags struct {
	Listen    string `default:"auto" placeholder:"ADDRS" help:"Where peers listen: auto (this host only, until the job has a ticket), local (this host only), all (all interfaces), or addresses separated by commas, each with a port or range of ports if need be, as in 192.0.2.1:7000-7019."`
	LAN       bool   `name:"lan" help:"Let the job be found on the local network (multicast DNS) once it has a ticket, and look for its peers there."`
	PortMap   bool   `help:"Ask the router of this host, by NAT-PMP or UPnP, to forward ports to these peers: for hosts in homes, whose routers let in nothing else."`
	Site      string `placeholder:"NAME" help:"Where these peers are, as in berlin: sums cross between sites once, when all peers of the job name theirs. site=NAME in a hostfile takes precedence."`
	Transport string `enum:"auto,shm,unix,direct,p2p" default:"auto" help:"How data travels: auto, shm, unix, direct or p2p."`
	Encrypt   string `enum:"auto,always,never" default:"auto" help:"Encrypt data between hosts: auto, always or never. Streams of libp2p always are, data within a host never is."`
	Relay     string `enum:"never,members" default:"members" help:"Whether two peers that cannot connect, as behind routers, may reach each other by way of a third and find a direct way from there: members, or never. All three must allow it."`
}

// network returns the options of the network of a job.
func (f *networkFlags) network() launch.Network {
	return launch.Network{Listen: f.Listen, LAN: f.LAN, PortMap: f.PortMap, Site: f.Site,
		Transport: f.Transport, Encrypt: f.Encrypt, Relay: f.Relay}
}
