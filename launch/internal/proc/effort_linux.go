package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// clockTick is the unit of times in /proc/PID/stat: 100 a second on all systems that Go supports.
const clockTick = 10 * time.Millisecond

// Effort returns what the process and its descendants have done, without this process and its own
// descendants. It falls when a descendant gets another parent. It is zero if unknown.
func (f *Foreign) Effort() (e Effort) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // no error: the pattern is valid
	all := make(map[int]stat, len(files))
	children := make(map[int][]int)
	for _, file := range files {
		dir := filepath.Dir(file)
		pid, err := strconv.Atoi(filepath.Base(dir))
		s, ok := readStat(dir)
		if err != nil || !ok || pid == os.Getpid() {
			continue
		}
		all[pid] = s
		children[s.parent] = append(children[s.parent], pid)
	}
	for due := []int{f.PID}; len(due) > 0; {
		pid := due[0]
		due = append(due[1:], children[pid]...)
		e.CPU += time.Duration(all[pid].ticks) * clockTick
		e.Bytes += transferred(pid)
		e.RSS += resident(strconv.Itoa(pid))
	}
	return e
}

// transferred returns the bytes that a process has read and written; 0 if unknown.
func transferred(pid int) (sum int64) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "io"))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil && (string(name) == "rchar" || string(name) == "wchar") {
			sum += n
		}
	}
	return sum
}

// resident returns the memory of a process in bytes; 0 if unknown.
func resident(pid string) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "statm"))
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64) // 0 for what is no number
	return pages * int64(os.Getpagesize())
}

// Stopped reports whether a signal has stopped the process.
func (f *Foreign) Stopped() bool { return Stopped(f.PID) }
