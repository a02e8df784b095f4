package proc

import (
	"net"
)

// MaxProbed bounds the addresses of a host that are tried.
const MaxProbed = 16

// HostAddresses returns the addresses at which other hosts may reach this host, or its loopback
// addresses if it has no others.
func HostAddresses() []string {
	all, _ := net.InterfaceAddrs() // without addresses there is nothing to try
	var out, loopback []string
	for _, a := range all {
		ip, ok := a.(*net.IPNet)
		switch {
		case !ok || ip.IP.IsLinkLocalUnicast():
		case ip.IP.IsLoopback():
			loopback = append(loopback, ip.IP.String())
		default:
			out = append(out, ip.IP.String())
		}
	}
	return append(out, loopback...)[:min(MaxProbed, len(out)+len(loopback))]
}
