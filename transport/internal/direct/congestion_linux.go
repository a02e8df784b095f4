package direct

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The choice between BBR and congestion control by losses (CUBIC). BBR leaves a hundredth of the
// rate unused, and stops sending for a moment every ten seconds to measure the round trip. A flow
// that is alone on its link has no advantage from that: it gets 95 % of the link instead of 99 %.
// On long paths, where losses are no sign of a full queue, BBR is better (Cardwell et al., "BBR:
// Congestion-Based Congestion Control", 2016).
//
// The round trip is known only after connecting. But a connection that begins under BBR paces its
// packets by a timer for good, also after a switch: at 200 Mbit/s hundreds of interrupts a second,
// which slow down a peer with one processor. So where BBR is the system's default, sockets begin
// without BBR, and sockets of long paths switch to it.

// nearBelow is the longest round trip to another host of the same network.
const nearBelow = 2 * time.Millisecond

// avoidBBR sets another congestion control than BBR for a TCP socket that is not connected yet.
// Connections accepted from a listening socket inherit it. Errors are ignored: BBR is only slower.
// It is a function for net.Dialer.Control.
func avoidBBR(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		if !isBBR(congestionControl(int(fd))) {
			return
		}
		if setCongestionControl(int(fd), "cubic") != nil {
			_ = setCongestionControl(int(fd), "reno") // available to all users
		}
	})
}

// takeBBR switches a connection with a round trip of nearBelow or more to the system's default
// congestion control, if that is BBR.
func takeBBR(sock net.Conn, roundTrip time.Duration) {
	if roundTrip < nearBelow {
		return
	}
	if name, err := usualCongestionControl(); err == nil && isBBR(name, nil) {
		_ = control(sock, func(fd int) error { return setCongestionControl(fd, name) })
	}
}

// usualCongestionControl returns the system's default, which a new socket has.
func usualCongestionControl() (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	name, err := congestionControl(fd)
	return name, errors.Join(err, unix.Close(fd))
}

// isBBR reports whether the name, if there is no error, is a version of BBR.
func isBBR(name string, err error) bool { return err == nil && strings.HasPrefix(name, "bbr") }

// congestionControl returns the congestion control of a TCP socket.
func congestionControl(fd int) (string, error) {
	name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	return strings.TrimRight(name, "\x00"), err
}

// setCongestionControl sets the congestion control of a TCP socket.
func setCongestionControl(fd int, name string) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}
