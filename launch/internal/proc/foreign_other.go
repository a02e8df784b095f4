//go:build !linux

package proc

import "syscall"

// open does nothing: only Linux has pidfds.
func (f *Foreign) open() error { return nil }

// wait waits for the end of the process. It returns false if the watch was closed before.
func (f *Foreign) wait() bool { return f.poll() }

// Signal sends a signal to the process. After its end it does nothing.
func (f *Foreign) Signal(sig syscall.Signal) { _ = syscall.Kill(f.PID, sig) }
