package shm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// currentCPU returns the core that the caller runs on. The caller may be migrated at any time.
func currentCPU() (core uint32, ok bool) {
	_, _, failed := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0)
	return core, failed == 0
}

// cpuLoad counts the ranks on each core. It has as many cores as a CPUSet.
type cpuLoad [1024]uint8

// add counts a rank on a core, if the core is known.
func (c *cpuLoad) add(core uint32) {
	if core < uint32(len(c)) {
		c[core]++
	}
}

// migrate moves this thread from a core to an allowed core that has at least two ranks fewer, and
// reports whether there is one. Afterwards the thread may run on all cores that were allowed
// before.
func (c *cpuLoad) migrate(core uint32) bool {
	if core >= uint32(len(c)) || c[core] < 2 {
		return false
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return false
	}
	// Remove from the allowed cores every core that would have as many ranks as the present core
	// has now.
	better := all
	for other, ranks := range c {
		if ranks+2 > c[core] {
			better.Clear(other)
		}
	}
	if better.Count() == 0 || unix.SchedSetaffinity(0, &better) != nil {
		return false
	}
	_ = unix.SchedSetaffinity(0, &all) // cannot fail: it was in force before
	return true
}
