//go:build !linux

package kernel

import "runtime"

// Yield offers the processor to other goroutines. There is no portable system call that offers the
// core to other processes.
func Yield() { runtime.Gosched() }
