package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Option returns what the kernel knows of an option of a socket, as getsockopt(2) does,
// without a word to the Go scheduler, as Read. T is what the kernel writes, without pointers.
func Option[T any](fd uintptr, level, option int) (T, error) {
	var value T
	size := uint32(unsafe.Sizeof(value))
	_, _, failed := unix.RawSyscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	if failed != 0 {
		return value, failed
	}
	return value, nil
}

// Yield lets other processes run that want this core.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
