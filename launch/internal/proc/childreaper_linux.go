package proc

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// AdoptOrphans waits for the orphans of this process until stop is called, if this is the first
// process of its container (PID 1). Other processes get no orphans, and o is nil there.
func AdoptOrphans() (o *ChildReaper, stop func()) {
	if os.Getpid() != 1 {
		return nil, func() {}
	}
	o = &ChildReaper{own: make(map[int]bool)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan os.Signal, 1)
	// The kernel merges pending SIGCHLD signals; reap handles all zombies at once.
	signal.Notify(ended, syscall.SIGCHLD)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer signal.Stop(ended)
		for {
			select {
			case <-ended:
				o.reap()
			case <-ctx.Done():
				return
			}
		}
	}()
	return o, func() {
		cancel()
		<-done
	}
}

// reap waits for the orphans that have ended.
func (c *ChildReaper) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pid := range zombies(os.Getpid()) {
		if !c.own[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // an error means that the process has been waited for already
		}
	}
}

// zombies returns the children of a process that have ended and have not been waited for. It
// reads /proc, because waiting for any child (wait4 with -1) would also take the status of a
// peer, for which os/exec waits.
func zombies(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // no error: the pattern is valid
	var out []int
	for _, f := range files {
		stat, err := os.ReadFile(f)
		// A process may disappear between the listing and the reading.
		if err != nil || !zombieOf(stat, parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// zombieOf reports whether the text of /proc/PID/stat describes a zombie child of parent. The text
// is "pid (name) state ppid ...", where the name may contain brackets.
func zombieOf(stat []byte, parent int) bool {
	end := bytes.LastIndexByte(stat, ')')
	return end >= 0 && bytes.HasPrefix(stat[end:], []byte(") Z "+strconv.Itoa(parent)+" "))
}
