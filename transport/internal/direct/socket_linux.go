package direct

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/internal/kernel"
)

// kernelID returns a hash that is equal on processes of one kernel, one network namespace and one
// user. It is zero if the system does not report these.
func kernelID() [32]byte {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, err2 := os.Readlink("/proc/self/ns/net")
	if err != nil || err2 != nil {
		return [32]byte{}
	}
	return sha256.Sum256(fmt.Appendf(nil, "elrun site\n%s\n%s\n%d\n", boot, space, os.Getuid()))
}

// checkUser fails unless the other end of a Unix socket belongs to the same user. Other connections
// pass.
func checkUser(sock net.Conn) error {
	s, ok := sock.(*net.UnixConn)
	if !ok {
		return nil
	}
	conn, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var who *unix.Ucred
	var asked error
	err = conn.Control(func(fd uintptr) { who, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, asked); err != nil {
		return fmt.Errorf("get the user of the other end: %w", err)
	}
	if who.Uid != uint32(os.Getuid()) {
		return fmt.Errorf("the other end belongs to user %d, want user %d", who.Uid, os.Getuid())
	}
	return nil
}

// carried returns how many bytes of a TCP connection have arrived, and for how long bytes were in
// flight; zeros where that is not known. The kernel counts the time in ticks of some milliseconds.
// The delivery rate that the kernel computes is not used, because it is momentary: if the receiving
// host stalls and then reads all bytes at once, that rate is ten times too high.
func carried(sock net.Conn) (bytes uint64, busy time.Duration) {
	info := tcpInfo(sock)
	if info == nil {
		return 0, 0
	}
	return info.Bytes_acked, time.Duration(info.Busy_time) * time.Microsecond
}

// boundSegments limits the payload of the segments that a TCP socket sends. It also limits the
// received segments, as the socket announces the limit when it connects.
func boundSegments(raw syscall.RawConn, mss int) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, mss) })
	return errors.Join(err, os.NewSyscallError("setsockopt", failed))
}

// resent returns how often a TCP connection has retransmitted its oldest bytes in flight without
// any acknowledgement.
func resent(sock net.Conn) int {
	info := tcpInfo(sock)
	if info == nil || info.Unacked == 0 {
		return 0
	}
	return int(info.Retransmits)
}

// limitUnsent limits the unsent bytes of a TCP connection in the kernel. Errors are ignored:
// without the limit messages only wait longer.
func limitUnsent(sock net.Conn, room uint32) {
	_ = control(sock, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, int(room))
	})
}

// No other option of a TCP socket is set. The kernel adapts the size of its buffers to the path, up
// to its own limits, and a fixed size would be smaller on most systems. A limit for unacknowledged
// bytes (TCP_USER_TIMEOUT) would also end a connection whose reader pauses; the failure detection
// of the peer is faster.

// roundTrip returns the round trip time of a TCP connection, as the kernel measured it while
// connecting; 0 where it is not known.
func roundTrip(sock net.Conn) time.Duration {
	info := tcpInfo(sock)
	if info == nil {
		return 0
	}
	return time.Duration(info.Rtt) * time.Microsecond
}

// tcpInfo returns the kernel's TCP_INFO of a connection; nil for other connections.
func tcpInfo(sock net.Conn) (info *unix.TCPInfo) {
	_ = control(sock, func(fd int) error {
		got, err := kernel.Option[unix.TCPInfo](uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			info = &got
		}
		return err
	})
	return info
}

// control calls f with the descriptor of a TCP socket. For other sockets it does nothing.
func control(sock net.Conn, f func(fd int) error) error {
	t, ok := sock.(*net.TCPConn)
	if !ok {
		return nil
	}
	conn, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}
