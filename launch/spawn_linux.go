package launch

import "syscall"

// processAttributes gives a child its own process group, so that a terminal's Ctrl-C
// reaches it only through the launcher, and SIGTERM if the launcher's thread ends. That
// thread must live as long as the launcher: Run locks itself to it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
