package proc

import "syscall"

// maxRSSUnit is the unit of Rusage.Maxrss in bytes.
const maxRSSUnit = 1 << 10

// processAttributes gives a child its own process group, so that a terminal's Ctrl-C reaches the
// child only through the launcher. It also makes the kernel send SIGTERM when the launcher's thread
// ends. That thread must live as long as the launcher, so Run locks its goroutine to it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
