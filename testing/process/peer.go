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

// Peer is a process of a job as the system sees it: a process that elrun has started, or a descendant of one.
type Peer struct {
	PID, Parent int
	Index       int // ELRUN_INDEX; -1 if it is not set

	environment string
}

// Peers returns the running processes of a job, of all its elrun processes, sorted by process ID. Stopped processes count as
// running, zombies do not.
func Peers(t testing.TB, job string) []Peer {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var out []Peer
	for _, f := range files {
		env, err := os.ReadFile(f) // empty for a zombie; an error for a process that has ended
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

// Env returns the value of a variable in the environment with which the process was started, or "" if it is not set.
func (p Peer) Env(name string) string {
	for v := range strings.SplitSeq(p.environment, "\x00") {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// State returns the state of a process: R, S, T, Z and so on, or "" if there is no such process.
func State(pid int) string {
	if fields := statOf(pid); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

// statOf returns the fields of /proc/PID/stat from the state on, or nil if there is no such process.
func statOf(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The name of the process comes before the state. It is in brackets and may contain any characters.
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// clockTick is the unit of times in /proc. It is the same on all architectures that Go supports.
const clockTick = 10 * time.Millisecond

// CPU returns the processor time that a process has used, rounded down to 10 ms; 0 if the process has ended.
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

// Program returns the name of a process's program, cut to 15 bytes, or "" if there is no such process.
func Program(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}

// StatusField returns a field of /proc/PID/status, for example "VmRSS" or "ShdPnd", or "" if there is no such field or process.
func StatusField(pid int, name string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Signal sends a signal to a process. It is no error if the process has ended.
func Signal(t testing.TB, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("%v to process %d: %v", sig, pid, err)
	}
}

// Sockets returns the number of control sockets of a job that exist in the kernel.
func Sockets(t testing.TB, job string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/"+job+":")
}

// number parses a number that the kernel wrote. It returns -1 if text is no number.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}
