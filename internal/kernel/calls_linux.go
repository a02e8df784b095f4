package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Option returns the value of a socket option, by getsockopt(2). The Go scheduler does not learn of
// the call (see Read). T is the structure that the Linux kernel writes; it must not have pointers.
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

// Yield offers this core to other processes, by sched_yield(2). The Go scheduler does not learn of
// the call, so no other goroutine takes the place of this one.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
