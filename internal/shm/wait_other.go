//go:build !linux

package shm

func coreHere() (core uint32, ok bool) { return 0, false }

// census counts nothing where threads have no cores of their own.
type census struct{}

func (*census) add(uint32)        {}
func (*census) leave(uint32) bool { return false }
