package shm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// yield lets other processes run.
func yield() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// coreHere returns the core that this runs on; it may be another one a moment later.
func coreHere() (core uint32, ok bool) {
	_, _, failed := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0)
	return core, failed == 0
}

// leaveCore moves this thread to another core that it may run on, if there is one.
func leaveCore(core uint32) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return
	}
	others := all
	others.Clear(int(core))
	if others.Count() > 0 && unix.SchedSetaffinity(0, &others) == nil {
		_ = unix.SchedSetaffinity(0, &all) // it was so before
	}
}
