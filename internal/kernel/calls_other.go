//go:build !linux

package kernel

import "runtime"

// Yield offers the processor to other goroutines.
func Yield() { runtime.Gosched() }
