//go:build linux && !race

package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// HaveCalls tells whether there are Read and WriteTwo.
const HaveCalls = true

// Read reads into b from a descriptor that does not block, as read(2) does, without a word to
// the Go scheduler: the processor stays with the goroutine, and the runtime's monitor thread
// is not woken. So b should be no longer than what is copied in some 100 us.
func Read(fd uintptr, b []byte) (int, error) {
	n, _, failed := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return result(n, failed)
}

// WriteTwo writes of a, which may be empty, and then of b what there is room for, as writev(2)
// does; otherwise it is like Read.
func WriteTwo(fd uintptr, a, b []byte) (int, error) {
	if len(a) == 0 {
		n, _, failed := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		return result(n, failed)
	}
	both := [2]unix.Iovec{{Base: unsafe.SliceData(a)}, {Base: unsafe.SliceData(b)}}
	both[0].SetLen(len(a))
	both[1].SetLen(len(b))
	n, _, failed := unix.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&both)), uintptr(len(both)))
	return result(n, failed)
}

// result is what a call has returned.
func result(n uintptr, failed unix.Errno) (int, error) {
	if failed != 0 {
		return 0, failed
	}
	return int(n), nil
}
