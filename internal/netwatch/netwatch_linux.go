package netwatch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// groups is the set of rtnetlink multicast groups for changes of interfaces and addresses.
const groups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR

// Open returns a Watcher of the caller's network namespace, by an rtnetlink socket. The caller
// closes the Watcher. Open needs no privileges.
func Open() (*Watcher, error) {
	f, err := listen()
	if err != nil {
		return nil, fmt.Errorf("netwatch: %w", err)
	}
	w := &Watcher{changes: make(chan struct{}, 1), stop: f.Close, done: make(chan struct{})}
	go w.read(f)
	return w, nil
}

// listen returns a non-blocking rtnetlink socket, as a file of the runtime's network poller.
func listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	// A non-blocking socket as an os.File uses the runtime's poller, so that Close ends a pending
	// Read.
	return os.NewFile(uintptr(fd), "rtnetlink"), nil
}

// read is the reader goroutine; it records a change for each message. If messages did not fit the
// socket's buffer, the kernel reports ENOBUFS: this also counts as a change.
func (w *Watcher) read(f *os.File) {
	defer close(w.done)
	defer close(w.changes)
	// The content of a message is not needed, so a truncated message does no harm.
	b := make([]byte, 16<<10)
	for {
		_, err := f.Read(b)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return // closed
		}
		w.note()
	}
}
