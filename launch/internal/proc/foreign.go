package proc

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// Foreign is a process that another process has started, and for which this one acts: the program of
// a sidecar. It is safe for concurrent use.
type Foreign struct {
	PID     int
	handle  *os.File // a pidfd; nil where there is none
	ended   chan struct{}
	closed  chan struct{}
	once    sync.Once // for Close
	waiting sync.WaitGroup
}

// Effort is what a process and its descendants have done so far.
type Effort struct {
	CPU   time.Duration // processor time
	Bytes int64         // read and written
	RSS   int64         // bytes of memory
}

// foreignPoll is the period at which the end of a process is looked for where there is no pidfd.
const foreignPoll = 50 * time.Millisecond

// OpenForeign begins to watch process pid, which must run. The caller closes the result.
func OpenForeign(pid int) (*Foreign, error) {
	if pid < 1 {
		return nil, fmt.Errorf("launch: process %d: want the ID of the program", pid)
	}
	f := &Foreign{PID: pid, ended: make(chan struct{}), closed: make(chan struct{})}
	err := f.open()
	if err == nil {
		err = syscall.Kill(pid, 0)
	}
	if err != nil {
		f.release()
		return nil, fmt.Errorf("launch: watch process %d: %w", pid, err)
	}
	f.waiting.Go(func() {
		if f.wait() {
			close(f.ended)
		}
	})
	return f, nil
}

// Ended returns a channel that is closed when the process has ended, also if nobody has waited for it yet.
func (f *Foreign) Ended() <-chan struct{} { return f.ended }

// Close ends the watch: Ended is not closed from now on. It may be called again.
func (f *Foreign) Close() {
	f.once.Do(func() {
		close(f.closed)
		f.release()
	})
	f.waiting.Wait()
}

// release closes the handle.
func (f *Foreign) release() {
	if f.handle != nil {
		_ = f.handle.Close() // nothing was written
	}
}

// poll waits for the end of the process by its ID. It returns false if the watch was closed before.
func (f *Foreign) poll() bool {
	tick := time.NewTicker(foreignPoll)
	defer tick.Stop()
	for {
		if syscall.Kill(f.PID, 0) == syscall.ESRCH {
			return true
		}
		select {
		case <-tick.C:
		case <-f.closed:
			return false
		}
	}
}

// OwnEffort returns what this process has done, without its Bytes.
func OwnEffort() Effort {
	e := Effort{RSS: resident("self")}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		e.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return e
}
