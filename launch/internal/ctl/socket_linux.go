package ctl

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// networkSpace returns a name for the network namespace of this process. Each namespace has its own
// directory of control sockets, because loopback addresses mean nothing outside of their namespace.
func networkSpace() string {
	link, _ := os.Readlink("/proc/self/ns/net") // net:[4026531840]; without /proc all share one name
	return "net" + strings.Trim(strings.TrimPrefix(link, "net:"), "[]")
}

// SameUser returns an error unless the process at the other end belongs to this user or root. The
// directory of the sockets is private as well; this check protects the socket even if the mode of
// the directory was changed.
func SameUser(conn net.Conn) error {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T has no credentials", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return fmt.Errorf("credentials of the other end: %w", err)
	}
	if uid := int(cred.Uid); uid != os.Getuid() && uid != 0 {
		return fmt.Errorf("the other end belongs to user %d", uid)
	}
	return nil
}
