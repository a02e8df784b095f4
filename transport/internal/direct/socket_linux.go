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

// site tells processes of one kernel, one network namespace and one user from all others.
func site() ([32]byte, bool) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return [32]byte{}, false
	}
	space, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return [32]byte{}, false
	}
	return sha256.Sum256(fmt.Appendf(nil, "elrun site\n%s\n%s\n%d\n", boot, space, os.Getuid())), true
}

// ListenAbstract listens at a Unix socket in the abstract namespace, of which nothing is left
// when this process has ended.
func ListenAbstract(name string) (net.Listener, error) {
	return net.Listen("unix", "@"+name)
}

// CheckUser refuses the other end of a Unix socket unless it is of the same user.
func CheckUser(sock net.Conn) error {
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
		return fmt.Errorf("ask who is there: %w", err)
	}
	if who.Uid != uint32(os.Getuid()) {
		return fmt.Errorf("user %d is there, and not %d", who.Uid, os.Getuid())
	}
	return nil
}

// carried returns how many bytes of a TCP connection have arrived, and for how long bytes were
// on their way; zeros where that is not known. The kernel counts the time in ticks of some
// milliseconds. The rate that it tells itself is that of a moment: where the machine of the
// other side looks away, and then takes in all at once, it is ten times too high.
func carried(sock net.Conn) (bytes uint64, busy time.Duration) {
	info := tcpInfo(sock)
	if info == nil {
		return 0, 0
	}
	return info.Bytes_acked, time.Duration(info.Busy_time) * time.Microsecond
}

// boundSegments bounds the payload of the segments that a TCP socket sends and, as it tells the
// other side when it connects, of those that it gets.
func boundSegments(raw syscall.RawConn, mss int) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, mss) })
	return errors.Join(err, os.NewSyscallError("setsockopt", failed))
}

// resent returns how often the oldest bytes that are on their way over a TCP connection were sent
// again since something was acknowledged.
func resent(sock net.Conn) int {
	info := tcpInfo(sock)
	if info == nil || info.Unacked == 0 {
		return 0
	}
	return int(info.Retransmits)
}

// limitUnsent bounds the bytes that wait in the kernel to be sent over a TCP connection.
// What cannot be changed stays: it is only that messages wait.
func limitUnsent(sock net.Conn, room uint32) {
	_ = control(sock, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, int(room))
	})
}

// No other option of a TCP socket is set unasked. The kernel fits the size of its buffers to the path as
// far as its own limits go, and to set one would make it smaller on most systems. A limit
// for what is not acknowledged (TCP_USER_TIMEOUT) would also end a connection whose reader
// pauses; whoever watches the peer knows earlier when that is gone.

// roundTrip returns how long it takes from one side of a TCP connection to the other and
// back, as the kernel saw it when that was made; 0 where it is not known.
func roundTrip(sock net.Conn) time.Duration {
	info := tcpInfo(sock)
	if info == nil {
		return 0
	}
	return time.Duration(info.Rtt) * time.Microsecond
}

// tcpInfo returns what the kernel knows of a TCP connection, and nil of others.
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

// control calls f with the descriptor of a TCP socket, and not at all for others.
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
