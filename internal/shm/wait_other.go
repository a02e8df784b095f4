//go:build !linux

package shm

// currentCPU returns false: the core is not known.
func currentCPU() (core uint32, ok bool) { return 0, false }

// cpuLoad is empty, as only Linux can migrate a thread.
type cpuLoad struct{}

func (*cpuLoad) add(uint32)          {}
func (*cpuLoad) migrate(uint32) bool { return false }
