package shm

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

// available returns how many bytes of memory this process can have before somebody would
// be killed for it: what the system has, and what the limits of its control groups leave.
// What cannot be found out is taken for plenty.
func available() int {
	room := math.MaxInt
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		room = memAvailable(b)
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return room
	}
	for dir := cgroupOf(b); dir != ""; dir = filepath.Dir(dir) {
		room = min(room, left("/sys/fs/cgroup"+dir))
		if dir == "/" {
			break
		}
	}
	return room
}

// memAvailable reads the kernel's estimate out of /proc/meminfo.
func memAvailable(meminfo []byte) int {
	for l := range bytes.Lines(meminfo) {
		f := bytes.Fields(l)
		if len(f) < 2 || string(f[0]) != "MemAvailable:" {
			continue
		}
		if n, err := strconv.Atoi(string(f[1])); err == nil && n < math.MaxInt>>10 {
			return n << 10
		}
	}
	return math.MaxInt
}

// cgroupOf reads the path in the unified hierarchy out of /proc/self/cgroup; "" if there
// is none.
func cgroupOf(b []byte) string {
	for l := range bytes.Lines(b) {
		if path, ok := bytes.CutPrefix(bytes.TrimSpace(l), []byte("0::/")); ok {
			return "/" + string(path)
		}
	}
	return ""
}

// left is what a control group may still take. Files that nobody has used of late make
// room.
func left(group string) int {
	most, err := readNumber(group + "/memory.max")
	if err != nil {
		return math.MaxInt // also for "max"
	}
	now, err := readNumber(group + "/memory.current")
	if err != nil {
		return math.MaxInt
	}
	stat, _ := os.ReadFile(group + "/memory.stat") // without it there is less room
	for l := range bytes.Lines(stat) {
		if n, ok := bytes.CutPrefix(bytes.TrimSpace(l), []byte("inactive_file ")); ok {
			files, _ := strconv.Atoi(string(n))
			now -= files
		}
	}
	return max(0, most-now)
}

func readNumber(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(b)))
}
