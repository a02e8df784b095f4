package proc

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process is known while it runs, while it is stopped, and when it has ended, also before its parent has waited for it, with a
// pidfd and without.
func TestForeign(t *testing.T) {
	for _, handle := range []bool{true, false} {
		c := exec.Command("sleep", "600")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		f, err := OpenForeign(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if !handle {
			f.Close()
			f = &Foreign{PID: f.PID, ended: make(chan struct{}), closed: make(chan struct{})}
			f.waiting.Go(func() {
				if f.wait() {
					close(f.ended)
				}
			})
		}
		for _, step := range []struct {
			signal  syscall.Signal
			stopped bool
		}{{syscall.SIGSTOP, true}, {syscall.SIGCONT, false}} {
			f.Signal(step.signal)
			for limit := time.Now().Add(time.Minute); f.Stopped() != step.stopped; <-time.After(time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatalf("after signal %v: stopped %v", step.signal, f.Stopped())
				}
			}
		}
		select {
		case <-f.Ended():
			t.Fatal("the process runs")
		default:
		}
		f.Signal(syscall.SIGKILL)
		if !handle {
			_ = c.Wait() // a zombie has an ID
		}
		<-f.Ended()
		_ = c.Wait()
		f.Signal(syscall.SIGKILL)
		f.Close()
		f.Close()
		if f, err := OpenForeign(c.Process.Pid); err == nil {
			f.Close()
			t.Error("a process that has ended is watched")
		}
	}
}

// A watch that is closed reports nothing.
func TestForeignClosed(t *testing.T) {
	f, err := OpenForeign(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	select {
	case <-f.Ended():
		t.Error("this process runs")
	default:
	}
}

// The effort of a process has that of its descendants, in time and data, and not that of this process.
func TestForeignEffort(t *testing.T) {
	// The grandchild ends when nobody reads its output any more.
	for _, script := range []string{"sh -c 'while :; do :; done'; true", "sh -c 'while :; do read -r x < /proc/self/stat; done'; true"} {
		c := exec.Command("sh", "-c", script)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		end := sync.OnceFunc(func() {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			_ = c.Wait()
		})
		t.Cleanup(end)
		f, err := OpenForeign(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		for limit := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
			e := f.Effort()
			if e.CPU >= 50*time.Millisecond && e.Bytes > 0 {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("%q: effort %+v", script, e)
			}
		}
		f.Close()
		end()
	}
	f, err := OpenForeign(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if e := f.Effort(); e.CPU != 0 {
		t.Errorf("this process is not left out: %+v", e)
	}
}
