package preempt

import "syscall"

// attributes gives the command its own process group, and makes the kernel kill it when elrun
// dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
