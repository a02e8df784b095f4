package netwatch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// groups are the multicast groups of rtnetlink that tell of interfaces and of addresses.
const groups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR

// Open starts to watch the network namespace of the caller.
func Open() (*Watcher, error) {
	f, err := listen()
	if err != nil {
		return nil, fmt.Errorf("netwatch: %w", err)
	}
	w := &Watcher{changes: make(chan struct{}, 1), stop: f.Close, done: make(chan struct{})}
	go w.read(f)
	return w, nil
}

// listen returns a socket of rtnetlink, which the Go scheduler waits for.
func listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "rtnetlink"), nil
}

// read notes each message. What did not fit into the socket is lost, and says so (ENOBUFS): that
// is a change like any other.
func (w *Watcher) read(f *os.File) {
	defer close(w.done)
	defer close(w.changes)
	b := make([]byte, 16<<10)
	for {
		_, err := f.Read(b)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return // closed
		}
		w.note()
	}
}
