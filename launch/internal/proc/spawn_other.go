//go:build !linux

package proc

import "syscall"

// maxRSSUnit is the unit of Rusage.Maxrss in bytes.
const maxRSSUnit = 1

// processAttributes gives a child its own process group, so that a terminal's Ctrl-C reaches the
// child only through the launcher.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
