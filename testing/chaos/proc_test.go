package chaos

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// process is a peer as the system sees it.
type process struct {
	pid, parent int
	index       int // ELRUN_INDEX
}

// processes returns the peers of a job that run, those of all its elruns, in the order of
// their IDs.
func processes(t *testing.T, job string) []process {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var out []process
	for _, f := range files {
		env, err := os.ReadFile(f) // empty for a zombie, an error for one that is gone
		if err != nil || !bytes.Contains(env, []byte("\x00ELRUN_JOB="+job+"\x00")) {
			continue
		}
		p := process{pid: number(strings.Split(f, "/")[2]), parent: parent(filepath.Dir(f)), index: -1}
		for v := range strings.SplitSeq(string(env), "\x00") {
			if text, ok := strings.CutPrefix(v, "ELRUN_INDEX="); ok {
				p.index = number(text)
			}
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b process) int { return a.pid - b.pid })
	return out
}

// parent returns the parent of the process with that folder in /proc, 0 if it is gone.
func parent(dir string) int {
	// The process's name, in brackets, may hold anything; after it come state and parent.
	stat, err := os.ReadFile(dir + "/stat")
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if err != nil || len(fields) < 2 {
		return 0
	}
	return number(fields[1])
}

// number reads a number that the system wrote; -1 for what is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && len(b) > 0
}

// resident returns the memory of a process in KiB, 0 if it is gone.
func resident(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return number(strings.Fields(text)[0])
		}
	}
	return 0
}

// sockets counts the control sockets of a job that the kernel knows.
func sockets(t *testing.T, job string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/"+job+":")
}

// segments returns the names in the folder of shared memory that have to do with elrun.
func segments(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("/dev/shm/*elrun*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}
