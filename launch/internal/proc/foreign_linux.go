package proc

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// open opens the pidfd of the process, unless the kernel has none (before Linux 5.3, or where a sandbox
// forbids the call).
func (f *Foreign) open() error {
	fd, err := unix.PidfdOpen(f.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return os.ErrProcessDone
	case err != nil:
		return nil
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else NewFile would not register it with the poller
		return errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	f.handle = os.NewFile(uintptr(fd), "pidfd")
	return nil
}

// wait waits for the end of the process. It returns false if the watch was closed before.
func (f *Foreign) wait() bool {
	if f.handle == nil {
		return f.poll()
	}
	conn, err := f.handle.SyscallConn()
	if err != nil {
		return f.poll()
	}
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 && err == nil
	})
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return f.poll()
	}
	return err == nil
}

// Signal sends a signal to the process. After its end it does nothing.
func (f *Foreign) Signal(sig syscall.Signal) {
	if f.handle == nil {
		_ = syscall.Kill(f.PID, sig)
		return
	}
	if conn, err := f.handle.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	}
}
