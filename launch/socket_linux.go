package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Abstract sockets live in the network namespace and vanish with their process, so
// that even SIGKILL leaves nothing behind. Anybody may connect to one or take its
// name, hence both ends check whose the other is.

// address returns the socket's address; "@" stands for the zero byte of abstract ones.
func (n socketName) address() string { return socketPrefix() + n.String() }

// socketPrefix begins the addresses of all sockets of this user.
func socketPrefix() string { return "@elrun/" + strconv.Itoa(os.Getuid()) + "/" }

func listenControl(at socketName) (net.Listener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: at.address(), Net: "unix"})
}

func dialControl(ctx context.Context, at socketName) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", at.address())
}

// sameUser returns an error unless the other end belongs to this user or root.
func sameUser(conn net.Conn) error {
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

// listControls finds the sockets of this user's peers.
func listControls() ([]socketName, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseSockets(f, socketPrefix())
}

// parseSockets reads /proc/net/unix: a line is "Num RefCount Protocol Flags Type St
// Inode Path". Accepted connections carry the path as well, so names repeat.
func parseSockets(r io.Reader, prefix string) ([]socketName, error) {
	seen := map[socketName]bool{}
	var out []socketName
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		fields := strings.Fields(scan.Text())
		if len(fields) != 8 || !strings.HasPrefix(fields[7], prefix) {
			continue
		}
		n, err := parseSocketName(strings.TrimPrefix(fields[7], prefix))
		if err != nil || seen[n] {
			continue
		}
		seen[n] = true
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b socketName) int { return strings.Compare(a.String(), b.String()) })
	return out, scan.Err()
}
