package netchaos

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// on returns a command that runs on host h, or on the real host if h is nil. env is added to the
// environment of the command. The command is killed when the test process ends.
func on(t *testing.T, h *host, env []string, args ...string) *exec.Cmd {
	t.Helper()
	env = append(os.Environ(), env...)
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if h != nil {
		args = append([]string{"ip", "netns", "exec", h.namespace, process.Self(t)}, args...)
		env = append(env, hostVariable+"="+h.name, roleVariable+"="+hostRole)
		attr.Cloneflags = syscall.CLONE_NEWUTS
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.SysProcAttr = env, attr
	return cmd
}
