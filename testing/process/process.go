package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program that was started. Any goroutine may call its methods, except that only the goroutine of the test may call
// methods that can end the test.
type Process struct {
	Cmd      *exec.Cmd
	Out, Err Output // empty if Cmd had streams of its own

	ended chan struct{}
}

// Start starts a command. Its standard output and error are collected, unless it has other streams
// already. The end of the test kills the process if it still runs. If the test has failed, the
// test's log gets the output, and a Go program that still runs prints the stacks of its goroutines
// first. The test's temporary folders are removed only after the process has ended.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	_ = t.TempDir() // removes the folders after the process's clean-up, because it is registered first
	p := start(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			p.stacks()
		}
		p.Kill()
		p.show(t)
	})
	return p
}

// start is Start without the cleanup.
func start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.Out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.Err
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // cmd.ProcessState keeps the status
	}()
	return p
}

// PID returns the ID of the process.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Ended returns a channel that is closed when the process has ended and all of its output was read.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running reports whether the process still runs.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Status returns the exit status of a process that has ended, or -1 if a signal has ended it.
func (p *Process) Status() int { return p.Cmd.ProcessState.ExitCode() }

// Wait waits until the process has ended and returns the exit status.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	Until(t, fmt.Sprintf("the end of process %d", p.PID()), func() bool { return !p.Running() })
	return p.Status()
}

// Kill kills the process, unless it has ended, and waits for its end.
func (p *Process) Kill() {
	if p.Running() {
		_ = p.Cmd.Process.Kill() // fails only if the process has ended
	}
	<-p.ended
}

// stacks makes a Go program print the stacks of its goroutines to standard error and end. It gives the program one second to
// end.
func (p *Process) stacks() {
	if !p.Running() {
		return
	}
	_ = p.Cmd.Process.Signal(syscall.SIGQUIT) // fails only if the process has ended
	select {
	case <-p.ended:
	case <-time.After(time.Second): // the process is stopped, or no Go program
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Says reports whether the process has printed all of the texts, on standard output or standard error.
func (p *Process) Says(texts ...string) bool {
	out, err := p.Out.String(), p.Err.String()
	for _, s := range texts {
		if !strings.Contains(out, s) && !strings.Contains(err, s) {
			return false
		}
	}
	return true
}

// Expect waits until the process has printed all of the texts, on standard output or standard error.
func (p *Process) Expect(t testing.TB, texts ...string) {
	t.Helper()
	p.Until(t, fmt.Sprintf("%q on the output", texts), func() bool { return p.Says(texts...) })
}

// Until waits for a condition while the process runs. what describes the condition in messages.
func (p *Process) Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	Until(t, what, func() bool {
		running := p.Running() // read before the condition, so that the last action of the process counts
		if condition() {
			return true
		}
		if !running {
			t.Fatalf("process %d ended (%v) before %s", p.PID(), p.Cmd.ProcessState, what)
		}
		return false
	})
}

// show writes the output of the process to the log of a failed test.
func (p *Process) show(t testing.TB) {
	t.Helper()
	if !t.Failed() {
		return
	}
	t.Logf("process %d, %v: %v\nstandard output:\n%s", p.PID(), p.Cmd.Args, p.Cmd.ProcessState, Tail(p.Out.String(), 100_000))
	t.Logf("standard error:\n%s", Tail(p.Err.String(), 100_000))
}

// Tail returns the end of a text: whole lines, at most n bytes.
func Tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	_, s, _ = strings.Cut(s[len(s)-n:], "\n")
	return "...\n" + s
}

// Command runs elrun with arguments, and returns when it has ended. It fails the test after Limit.
func Command(t testing.TB, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, Elrun(), args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// Output collects the output of processes. The zero value is empty. It is safe for concurrent use.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer. It returns no error.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
