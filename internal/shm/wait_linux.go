package shm

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futex(2). The word is shared between processes: no private futex.
const (
	futexWait = 0
	futexWake = 1
)

// sleep returns when the word was woken or has not the value any more, or after at most d.
// It may return earlier.
func sleep(w *atomic.Uint32, value uint32, d time.Duration) {
	timeout := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(value),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
}

// wake ends the sleeps of all.
func wake(w *atomic.Uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1<<30, 0, 0, 0)
}

// yield lets other processes run.
func yield() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
