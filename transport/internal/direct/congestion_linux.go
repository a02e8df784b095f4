package direct

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BBR keeps a hundredth of the rate free, and stops sending for a moment every ten seconds to
// find out how long the way is, which a flow does not need to know that has a link of its
// own: 95 % of it instead of 99 %. On long ways, where losses are no sign of a full queue,
// it is the better one. How long a way is shows when a connection is made, but one that
// begins under BBR sends by a timer for good, also after it has left it: at 200 Mbit/s
// hundreds of interrupts a second that a peer's only processor feels. So where BBR is what
// the system has for all, sockets begin without, and those of long ways take it then.

// nearBelow is how far away another host of the same network is at most, and back.
const nearBelow = 2 * time.Millisecond

// avoidBBR takes another congestion control than BBR for a TCP socket that is not connected
// yet, and for those that one accepts which listens. What cannot be changed stays: it is
// only slower.
func avoidBBR(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		if !isBBR(congestionControl(int(fd))) {
			return
		}
		if setCongestionControl(int(fd), "cubic") != nil {
			_ = setCongestionControl(int(fd), "reno") // which all may take
		}
	})
}

// takeBBR gives a connection over so long a way the congestion control that the system has
// for all, if that is BBR.
func takeBBR(sock net.Conn, roundTrip time.Duration) {
	if roundTrip < nearBelow {
		return
	}
	if name, err := usualCongestionControl(); err == nil && isBBR(name, nil) {
		_ = control(sock, func(fd int) error { return setCongestionControl(fd, name) })
	}
}

// usualCongestionControl returns what a new socket has.
func usualCongestionControl() (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	name, err := congestionControl(fd)
	return name, errors.Join(err, unix.Close(fd))
}

func isBBR(name string, err error) bool { return err == nil && strings.HasPrefix(name, "bbr") }

func congestionControl(fd int) (string, error) {
	name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	return strings.TrimRight(name, "\x00"), err
}

func setCongestionControl(fd int, name string) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}
