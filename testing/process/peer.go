package process

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Peer is a process of a job as the system sees it: one that elrun has started, or that
// has come from there.
type Peer struct {
	PID, Parent int
	Index       int // ELRUN_INDEX, -1 if it is not there

	environment string
}

// Peers returns the processes of a job that run, of all its elruns, by their IDs. Those
// that are stopped do run, zombies do not.
func Peers(t testing.TB, job string) []Peer {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var out []Peer
	for _, f := range files {
		env, err := os.ReadFile(f) // empty for a zombie, an error for one that is gone
		p := Peer{environment: string(env)}
		if err != nil || p.Env("ELRUN_JOB") != job {
			continue
		}
		p.PID, p.Index = number(strings.Split(f, "/")[2]), number(p.Env("ELRUN_INDEX"))
		if fields := statOf(p.PID); len(fields) > 1 {
			p.Parent = number(fields[1])
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Peer) int { return cmp.Compare(a.PID, b.PID) })
	return out
}

// Env returns the value of a variable in the environment with which the process began, ""
// if it is not there.
func (p Peer) Env(name string) string {
	for v := range strings.SplitSeq(p.environment, "\x00") {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// State returns the state of a process: R, S, T, Z and so on, "" if there is none.
func State(pid int) string {
	if fields := statOf(pid); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

// statOf returns the fields of /proc/PID/stat from the state on, nil if the process is gone.
func statOf(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The process's name, in brackets, may hold anything.
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// clockTick is the unit of times in /proc, the same on all architectures that Go knows.
const clockTick = 10 * time.Millisecond

// CPU returns the time of processors that a process has taken, rounded down to 10 ms; 0 if it is gone.
func CPU(pid int) time.Duration {
	fields := statOf(pid)
	if len(fields) < 13 {
		return 0
	}
	return time.Duration(max(0, number(fields[11]))+max(0, number(fields[12]))) * clockTick
}

// Alive reports whether a process runs. A zombie does not.
func Alive(pid int) bool {
	state := State(pid)
	return state != "" && state != "Z" && state != "X"
}

// Program returns the name of a process's program, at most 15 bytes of it, "" if there is
// no such process.
func Program(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}

// StatusField returns a field of /proc/PID/status, as "VmRSS" or "ShdPnd", "" if there is no
// such field or process.
func StatusField(pid int, name string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Signal sends a signal to a process. That it has ended is no error.
func Signal(t testing.TB, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("%v to process %d: %v", sig, pid, err)
	}
}

// Sockets counts the control sockets of a job that the kernel knows.
func Sockets(t testing.TB, job string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/"+job+":")
}

// number reads a number that the system wrote; -1 for what is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}
