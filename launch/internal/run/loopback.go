package run

import (
	"errors"
	"net"
	"slices"
)

// errLoopback reports that the loopback interface is down. Peers of one host reach each other only
// through this interface, whatever address they use, and would wait for ever.
var errLoopback = errors.New("launch: the loopback interface is down, and the peers of this host need it to reach each other: bring it up (ip link set lo up)")

// checkLoopback returns errLoopback if the loopback interface is down. A system without a loopback
// interface in its list passes the check: it may merely hide the interface.
func checkLoopback(all []net.Interface) error {
	// A new network namespace has its loopback interface down, which is the usual cause.
	up := func(i net.Interface) bool { return i.Flags&net.FlagUp != 0 }
	loopbacks := slices.DeleteFunc(slices.Clone(all), func(i net.Interface) bool { return i.Flags&net.FlagLoopback == 0 })
	if len(loopbacks) == 0 || slices.ContainsFunc(loopbacks, up) {
		return nil
	}
	return errLoopback
}
