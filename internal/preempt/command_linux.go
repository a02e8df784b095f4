package preempt

import "syscall"

// attributes gives the command a process group, and SIGKILL when elrun dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
