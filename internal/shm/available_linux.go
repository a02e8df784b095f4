package shm

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// available returns how many bytes of memory this process can take before the kernel would kill a
// process (OOM killer): the available memory of the system, or the memory that the limits of this
// process's control groups leave, if that is less. A limit that cannot be read does not count.
func available() int {
	room := math.MaxInt
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		room = memAvailable(b)
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return room
	}
	for _, g := range []groups{version1(), version2()} {
		room = min(room, g.room(g.dirOf(b)))
	}
	return room
}

// memAvailable reads the kernel's estimate, in KiB, from /proc/meminfo, and returns bytes. Without
// an estimate the result is unlimited.
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

// groups are the control groups of one version that limit memory.
type groups struct {
	controller string // as /proc/self/cgroup names it
	// mount is the path at which the hierarchy is mounted.
	mount     string
	most, now string // files; with the limit and the usage in bytes
	files     string // key in memory.stat: the memory of cached files that were not used recently
}

// version1 describes the memory controller of cgroup version 1.
func version1() groups {
	return groups{"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
}

// version2 describes the unified hierarchy of cgroup version 2, whose controller name is empty.
func version2() groups {
	return groups{"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
}

// dirOf reads the path of a process's group out of its /proc/self/cgroup, whose lines are
// "number:controllers:path"; "" if there is none.
func (g groups) dirOf(b []byte) string {
	for l := range bytes.Lines(b) {
		f := bytes.SplitN(bytes.TrimSpace(l), []byte(":"), 3)
		if len(f) == 3 && slices.ContainsFunc(bytes.Split(f[1], []byte(",")), func(c []byte) bool { return string(c) == g.controller }) {
			return string(f[2])
		}
	}
	return ""
}

// room returns how many bytes a group may still take, by its own limit and the limits of the groups
// above it. In a container /proc/self/cgroup may give a path that exists only on the host. Then the
// mount point is the group of the container, and room starts there.
func (g groups) room(dir string) int {
	if dir == "" {
		return math.MaxInt
	}
	if _, err := os.Stat(filepath.Join(g.mount, dir)); err != nil {
		dir = "/"
	}
	room := math.MaxInt
	for {
		room = min(room, g.left(filepath.Join(g.mount, dir)))
		if dir == "/" || dir == "." {
			return room
		}
		dir = filepath.Dir(dir)
	}
}

// left returns how many bytes a group may still take by its own limit. Memory of cached files that
// were not used recently counts as free, because the kernel drops it before it kills a process.
func (g groups) left(group string) int {
	most, err := readNumber(filepath.Join(group, g.most))
	if err != nil {
		return math.MaxInt // also for "max"
	}
	now, err := readNumber(filepath.Join(group, g.now))
	if err != nil {
		return math.MaxInt
	}
	stat, _ := os.ReadFile(filepath.Join(group, "memory.stat")) // if it cannot be read, no cached file counts as free
	for l := range bytes.Lines(stat) {
		if n, ok := bytes.CutPrefix(bytes.TrimSpace(l), []byte(g.files+" ")); ok {
			files, _ := strconv.Atoi(string(n))
			now = max(0, now-files)
		}
	}
	return max(0, most-now)
}

// readNumber returns the integer in a file. "max", which stands for no limit, is an error.
func readNumber(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(b)))
}
