//go:build linux && !race

package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// HaveCalls is true if Read and WriteTwo are implemented.
const HaveCalls = true

// Read reads into b from a non-blocking descriptor, by read(2). The Go scheduler does not learn of
// the call: the goroutine keeps its processor, and the runtime's monitor thread (sysmon) is not
// woken. The goroutine cannot be preempted during the call, so b should be no longer than the
// kernel copies in about 100 us. Errors are of type syscall.Errno, EAGAIN if there is no data.
func Read(fd uintptr, b []byte) (int, error) {
	n, _, failed := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return result(n, failed)
}

// WriteTwo writes a, which may be empty, and then b, as far as there is room, by writev(2). It
// returns the number of written bytes of both. Preemption and errors are as in Read.
func WriteTwo(fd uintptr, a, b []byte) (int, error) {
	if len(a) == 0 {
		n, _, failed := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		return result(n, failed)
	}
	// One call for both parts also keeps a small header from going out in a TCP segment of its own.
	both := [2]unix.Iovec{{Base: unsafe.SliceData(a)}, {Base: unsafe.SliceData(b)}}
	both[0].SetLen(len(a))
	both[1].SetLen(len(b))
	n, _, failed := unix.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&both)), uintptr(len(both)))
	return result(n, failed)
}

// result converts the results of a system call.
func result(n uintptr, failed unix.Errno) (int, error) {
	if failed != 0 {
		return 0, failed
	}
	return int(n), nil
}
