package shm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// coreHere returns the core that this runs on; it may be another one a moment later.
func coreHere() (core uint32, ok bool) {
	_, _, failed := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0)
	return core, failed == 0
}

// census counts the ranks on each core.
type census [1024]uint8

// add counts one more, if the core is known.
func (on *census) add(core uint32) {
	if core < uint32(len(on)) {
		on[core]++
	}
}

// leave moves this thread from a core to one that has at least two ranks fewer and that it
// may run on, and reports whether there is one.
func (on *census) leave(core uint32) bool {
	if core >= uint32(len(on)) || on[core] < 2 {
		return false
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return false
	}
	better := all
	for c, ranks := range on {
		if ranks+2 > on[core] {
			better.Clear(c)
		}
	}
	if better.Count() == 0 || unix.SchedSetaffinity(0, &better) != nil {
		return false
	}
	_ = unix.SchedSetaffinity(0, &all) // it was so before
	return true
}
