package main

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// watchSignals returns the signals that end a job, stop it and let it go on. A signal that
// elrun was started to ignore stays ignored, as users expect of nohup (SIGHUP) and of
// commands that a script runs in the background (SIGINT). SIGTERM always counts.
//
// Peers must hear SIGINT and SIGTERM all the same when elrun passes them on: an ignored
// signal stays ignored in children, a handled one does not. So SIGINT is taken and dropped.
func watchSignals() <-chan os.Signal {
	taken := make(chan os.Signal, 8)
	dropped := make(chan os.Signal, 1)     // nobody reads it
	toDrop := []os.Signal{syscall.SIGPIPE} // a reader that goes away must become a failed write
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

// canBeContinued reports whether Ctrl-Z may stop this process: not where it is ignored, nor
// where there is no shell to let it go on, as for the first process of a session or a container.
func canBeContinued() bool {
	session, err := unix.Getsid(0)
	if err != nil || session == os.Getpid() || os.Getpid() == 1 {
		return false
	}
	status, _ := os.ReadFile("/proc/self/status") // on Linux
	return !ignores(status, syscall.SIGTSTP)
}

// ignores reads in /proc/PID/status whether a signal is ignored.
func ignores(status []byte, sig syscall.Signal) bool {
	_, rest, found := bytes.Cut(status, []byte("\nSigIgn:\t"))
	mask, _, _ := bytes.Cut(rest, []byte("\n"))
	bits, err := strconv.ParseUint(string(mask), 16, 64)
	return found && err == nil && bits>>(int(sig)-1)&1 == 1
}
