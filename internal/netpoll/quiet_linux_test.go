//go:build !race

package netpoll

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// If the environment variable echoVariable is set, the test binary echoes the bytes that it receives on its first extra
// descriptor.
const echoVariable = "PROGRESS_ECHO"

// A process can receive and answer bytes without waking the monitor thread of its Go runtime. It then has about as many context
// switches as bytes. With ordinary system calls it has about ten times as many.
func TestStreamLetsTheMonitorSleep(t *testing.T) {
	if os.Getenv(echoVariable) != "" {
		echo()
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mine, its := os.NewFile(uintptr(fds[0]), "mine"), os.NewFile(uintptr(fds[1]), "its")
	defer mine.Close()
	defer its.Close()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), echoVariable+"=1", "GOMAXPROCS=1")
	child.ExtraFiles = []*os.File{its}
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	const trips = 300
	b := make([]byte, 1)
	for range trips {
		if _, err := mine.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(mine, b); err != nil {
			t.Fatal(err)
		}
		compute() // meanwhile the child waits
	}
	if err := mine.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	waits := child.ProcessState.SysUsage().(*syscall.Rusage).Nvcsw
	t.Logf("%d trips, its threads waited %d times", trips, waits)
	if waits > 4*trips {
		t.Errorf("%d trips, its threads waited %d times", trips, waits)
	}
}

// echo is the main function of the child.
func echo() {
	if err := syscall.SetNonblock(3, true); err != nil {
		os.Exit(1)
	}
	s := NewStream(os.NewFile(3, "socket"), true)
	b := make([]byte, 1)
	for {
		if _, err := s.Read(b); err != nil {
			os.Exit(0)
		}
		compute()
		if _, err := s.Write(b); err != nil {
			os.Exit(1)
		}
	}
}

// compute keeps the processor busy for a millisecond.
func compute() {
	for begun := time.Now(); time.Since(begun) < time.Millisecond; {
	}
}
