package launch

import (
	"errors"
	"net"
	"slices"
)

// errLoopback: peers of one host reach each other over the loopback interface, whatever
// address they use, and would wait in vain.
var errLoopback = errors.New("launch: the loopback interface is down, by which the peers of this host reach each other: bring it up (ip link set lo up)")

// checkLoopback reports a loopback interface that is down. A system that shows none is left
// alone: perhaps it only hides it.
func checkLoopback(all []net.Interface) error {
	up := func(i net.Interface) bool { return i.Flags&net.FlagUp != 0 }
	loopbacks := slices.DeleteFunc(slices.Clone(all), func(i net.Interface) bool { return i.Flags&net.FlagLoopback == 0 })
	if len(loopbacks) == 0 || slices.ContainsFunc(loopbacks, up) {
		return nil
	}
	return errLoopback
}
