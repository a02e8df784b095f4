//go:build !linux

package preempt

import "syscall"

// attributes gives the command its own process group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
