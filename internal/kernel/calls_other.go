//go:build !linux

package kernel

import "runtime"

// Yield lets other goroutines run.
func Yield() { runtime.Gosched() }
