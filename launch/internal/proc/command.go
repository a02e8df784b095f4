package proc

import (
	"context"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Command is a shell command that RunCommand runs.
type Command struct {
	Script string
	Input  io.Reader
	Env    []string
	Stderr func(part []byte) // gets the standard error; the caller owns part
}

// RunCommand runs a shell command to its end, in a process group of its own. The end of ctx kills the group.
// The error tells the exit status.
func RunCommand(ctx context.Context, orphans *ChildReaper, c Command) error {
	// On Linux the command gets its death signal when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "sh", "-c", c.Script)
	cmd.Stdin, cmd.Env, cmd.Stderr, cmd.SysProcAttr = c.Input, c.Env, part(c.Stderr), processAttributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // limits the wait for processes that the command leaves behind
	if err := orphans.Start(cmd); err != nil {
		return err
	}
	defer orphans.Ended(cmd.Process.Pid)
	return cmd.Wait()
}

// part is an io.Writer that passes on what it gets.
type part func([]byte)

// Write implements io.Writer.
func (p part) Write(b []byte) (int, error) {
	p(b)
	return len(b), nil
}
