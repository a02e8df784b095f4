package agent

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pathMTU returns the path MTU of a connection as the kernel knows it, in bytes; 0 if unknown.
// The kernel starts with the MTU of the interface and lowers it when a router reports by ICMP
// that a packet was too large (RFC 1191, RFC 8201).
func pathMTU(conn net.Conn) int {
	level, option := unix.IPPROTO_IPV6, unix.IPV6_MTU
	// An IPv6 socket that carries IPv4 (a mapped address) has the option of IPv4.
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok && a.IP.To4() != nil {
		level, option = unix.IPPROTO_IP, unix.IP_MTU
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	mtu := 0
	if err := raw.Control(func(fd uintptr) { mtu, err = unix.GetsockoptInt(int(fd), level, option) }); err != nil {
		return 0
	}
	return max(0, mtu)
}
