package proc

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// withTimerSlack calls start, which starts a process. All threads of that process have the given
// timer slack: a process inherits the slack of the thread that starts it, and keeps this slack over
// exec.
func withTimerSlack(slack time.Duration, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return start() // a sandbox may refuse the call; the process then has the default
	}
	// The calls cannot fail, because they need no privilege.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(own), 0, 0, 0) }()
	return start()
}
