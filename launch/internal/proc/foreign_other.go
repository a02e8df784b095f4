//go:build !linux

package proc

import "syscall"

// open does nothing: only Linux has pidfds.
func (f *Foreign) open() error { return nil }

// wait waits for the end of the process. It returns false if the watch was closed before.
func (f *Foreign) wait() bool { return f.poll() }

// Signal sends a signal to the process. After its end it does nothing.
func (f *Foreign) Signal(sig syscall.Signal) { _ = syscall.Kill(f.PID, sig) }

// resident returns 0: the memory of a process is known on Linux only.
func resident(string) int64 { return 0 }

// Effort returns nothing: what a process does is known on Linux only.
func (f *Foreign) Effort() Effort { return Effort{} }

// Stopped returns false: the state is known on Linux only.
func (f *Foreign) Stopped() bool { return false }
