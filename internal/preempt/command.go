package preempt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// command is a shell command that ends with status 0 when the notice comes.
type command string

// runScript evaluates its first argument, and writes to descriptor 3 if the status is 0. The exit
// status of the shell is not enough. If the program is the first process of a container (PID 1),
// another part of the program may wait for all child processes, and so collect the status of the
// shell.
const runScript = `(eval "$1") 3>&- && echo notice >&3`

// run runs the command once and returns the notice. An end without the notice is an error. The end
// of ctx kills the command with its process group.
func (c command) run(ctx context.Context) (string, error) {
	// On Linux the command gets its death signal when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, w, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("start %q: %w", string(c), err)
	}
	defer r.Close()
	var said tail
	cmd := exec.Command("sh", "-c", runScript, "sh", string(c))
	// The write end of the pipe becomes descriptor 3 of the shell.
	cmd.ExtraFiles, cmd.Stderr, cmd.SysProcAttr = []*os.File{w}, &said, attributes()
	cmd.WaitDelay = retryPeriod // limits the wait for processes that the command leaves behind
	err = cmd.Start()
	_ = w.Close() // the command has its own copy of the descriptor
	if err != nil {
		return "", fmt.Errorf("start %q: %w", string(c), err)
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	notice, _ := io.ReadAll(r) // ends when the shell has ended
	err = cmd.Wait()
	stop()
	switch {
	case len(notice) > 0:
		return string(c), nil
	case err == nil:
		err = errors.New("its exit status is unknown")
	}
	if line := said.lastLine(); line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	return "", fmt.Errorf("%q ended without a notice: %w", string(c), err)
}

// maxTail bounds the text that is kept of a command's standard error, in bytes. Only the last line
// is reported; the limit leaves room for a long line.
const maxTail = 4 << 10

// tail is a writer that keeps the end of the text.
type tail struct{ text []byte }

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - maxTail; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// lastLine returns the last line of the text, at most 100 bytes of it.
func (t *tail) lastLine() string {
	b := bytes.TrimSpace(t.text)
	b = bytes.TrimSpace(b[bytes.LastIndexByte(b, '\n')+1:])
	return strings.ToValidUTF8(string(b[:min(100, len(b))]), "")
}
