package netchaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// output collects what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// process is a program that was started, on one of the hosts or on the real one.
type process struct {
	cmd      *exec.Cmd
	out, err output
	done     chan struct{} // it has ended
}

// start runs a command on h, or, if h is nil, on the real host. It does not outlive the
// test process.
func start(t *testing.T, h *host, env []string, args ...string) *process {
	t.Helper()
	p := &process{done: make(chan struct{})}
	env = append(os.Environ(), env...)
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if h != nil {
		args = append([]string{"ip", "netns", "exec", h.namespace, self(t)}, args...)
		env = append(env, hostVariable+"="+h.name, roleVariable+"="+hostRole)
		attr.Cloneflags = syscall.CLONE_NEWUTS
	}
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env, p.cmd.SysProcAttr = env, attr
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the status is looked at in wait
	}()
	t.Cleanup(p.end)
	return p
}

// self is the path of the test binary.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// end kills the process, unless it has ended.
func (p *process) end() {
	select {
	case <-p.done:
	default:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// stacks makes a Go program end with the stacks of its goroutines on its standard error.
func (p *process) stacks() {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(time.Second): // stopped, or no Go program
	}
}

// wait returns the exit status.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("process %d still runs after %v", p.cmd.Process.Pid, limit)
		return 0
	}
}

// signal sends a signal to the process.
func (p *process) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// says reports whether the process has printed a text, on either stream.
func (p *process) says(text string) bool {
	return strings.Contains(p.out.String(), text) || strings.Contains(p.err.String(), text)
}

// peersOf returns the processes of a job on a host that run, by their environment; name
// is that of the host, "" for all hosts.
func peersOf(t *testing.T, job, name string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, f := range files {
		b, err := os.ReadFile(f) // empty for a zombie, an error for one that is gone
		if err != nil || !bytes.Contains(b, []byte("ELRUN_JOB="+job+"\x00")) {
			continue
		}
		if name != "" && !bytes.Contains(b, []byte(hostVariable+"="+name+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// holds waits for a condition and reports whether it came true within a time.
func holds(ctx context.Context, within time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// until waits for a condition that only a hang keeps from coming true.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !holds(t.Context(), limit, condition) {
		t.Fatalf("waited %v in vain for %s", limit, what)
	}
}

// after lets so much time pass.
func after(t *testing.T, d time.Duration) {
	t.Helper()
	holds(t.Context(), d, func() bool { return false })
}

// jobName is unique to the test and the test process.
func jobName(t *testing.T) string {
	name := strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "/", "-")
	return fmt.Sprintf("%.28s-%d", name, os.Getpid())
}
