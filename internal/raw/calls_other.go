//go:build !linux

package raw

import "runtime"

// Yield lets other goroutines run.
func Yield() { runtime.Gosched() }
