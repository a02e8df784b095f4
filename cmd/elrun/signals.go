package main

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// watchSignals returns the channel of the signals that end, stop and continue a job. A signal
// that is ignored at the start stays ignored, as users expect with nohup (SIGHUP) and with
// commands that a script runs in the background (SIGINT). SIGTERM is always received.
//
// An ignored SIGINT needs a handler that drops it. elrun forwards SIGINT to its peers, and
// children inherit ignored signals but not handled ones.
func watchSignals() <-chan os.Signal {
	// The channel is buffered, because package signal drops a signal if the channel is full, and a
	// second Ctrl-C has a meaning of its own.
	taken := make(chan os.Signal, 8)
	dropped := make(chan os.Signal, 1)     // never read
	toDrop := []os.Signal{syscall.SIGPIPE} // writes to a closed pipe must fail with an error
	toTake := []os.Signal{syscall.SIGTERM, syscall.SIGCONT}
	if signal.Ignored(syscall.SIGINT) {
		toDrop = append(toDrop, syscall.SIGINT)
	} else {
		toTake = append(toTake, syscall.SIGINT)
	}
	if !signal.Ignored(syscall.SIGHUP) {
		toTake = append(toTake, syscall.SIGHUP)
	}
	if canBeContinued() {
		toTake = append(toTake, syscall.SIGTSTP)
	}
	signal.Notify(taken, toTake...)
	signal.Notify(dropped, toDrop...)
	return taken
}

// canBeContinued reports whether Ctrl-Z may stop this process: SIGTSTP is not ignored, and there
// is a shell that can continue it, unlike for the first process of a session or of a container.
func canBeContinued() bool {
	session, err := unix.Getsid(0)
	if err != nil || session == os.Getpid() || os.Getpid() == 1 {
		return false
	}
	status, _ := os.ReadFile("/proc/self/status") // exists on Linux only
	return !ignores(status, syscall.SIGTSTP)
}

// ignores reports whether the text of /proc/PID/status says that a signal is ignored.
func ignores(status []byte, sig syscall.Signal) bool {
	_, rest, found := bytes.Cut(status, []byte("\nSigIgn:\t"))
	mask, _, _ := bytes.Cut(rest, []byte("\n"))
	// Bit n-1 of the mask stands for signal n (proc(5)).
	bits, err := strconv.ParseUint(string(mask), 16, 64)
	return found && err == nil && bits>>(int(sig)-1)&1 == 1
}
