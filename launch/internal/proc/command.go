package proc

import (
	"context"
	"errors"
	"io"
	"os"
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

// runScript evaluates its first argument. Beside it, a process waits for the end of descriptor 3, of which this
// process has the other end, and then kills the process group: what the command has left behind, or all if
// this process was killed.
const runScript = `{ read -r _ <&3; kill -KILL 0; } </dev/null >/dev/null 2>&1 & eval "$1" 3<&-`

// RunCommand runs a shell command to its end, in a process group of its own, and kills what is left of the group
// then. The end of ctx kills the group, and so does the death of this process. The error tells the exit
// status.
func RunCommand(ctx context.Context, orphans *ChildReaper, c Command) error {
	// On Linux the command gets its death signal when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	cmd := exec.CommandContext(ctx, "sh", "-c", runScript, "sh", c.Script)
	cmd.ExtraFiles = []*os.File{r}
	cmd.Stdin, cmd.Env, cmd.Stderr, cmd.SysProcAttr = c.Input, c.Env, part(c.Stderr), processAttributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // limits the wait for processes that the command leaves behind
	if err := orphans.Start(cmd); err != nil {
		return err
	}
	defer orphans.Ended(cmd.Process.Pid)
	if err := cmd.Wait(); !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil // what it has left behind holds its standard error
}

// part is an io.Writer that passes on what it gets.
type part func([]byte)

// Write implements io.Writer.
func (p part) Write(b []byte) (int, error) {
	p(b)
	return len(b), nil
}
