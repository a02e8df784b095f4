package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// things is a set of shared memory and sockets that processes of a job have had. A socket has the
// text of its link in /proc/PID/fd as name. Shared memory has the name "memory:[INODE]".
type things map[string]bool

// things returns the shared memory and the sockets that the processes of the job have now.
func (j *job) things(t *testing.T) things {
	t.Helper()
	all := make(things)
	all.add(t, j)
	return all
}

func (k things) add(t *testing.T, j *job) {
	t.Helper()
	for _, p := range j.Peers(t) {
		for _, name := range held(p.PID) {
			k[name] = true
		}
	}
}

// haveMemory reports whether t contains shared memory.
func (t things) haveMemory() bool {
	for name := range t {
		if strings.HasPrefix(name, "memory:") {
			return true
		}
	}
	return false
}

// held returns the shared memory and the sockets of a process.
func held(pid int) []string {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil
	}
	var out []string
	for _, l := range links {
		to, err := os.Readlink(l)
		if err != nil {
			continue // closed in the meantime
		}
		if strings.HasPrefix(to, "socket:[") {
			out = append(out, to)
		}
		if info, err := os.Stat(l); err == nil && strings.HasPrefix(to, "/memfd:elrun") {
			out = append(out, fmt.Sprintf("memory:[%d]", info.Sys().(*syscall.Stat_t).Ino))
		}
	}
	return out
}

// checkGone waits until none of the things exists in the kernel or in a process. Sockets may exist
// for a moment after the end of the processes. Then checkGone checks that nothing else of the job
// is left.
func (k things) checkGone(t *testing.T, j *job) {
	t.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			t.Errorf("left of the job: %v", left)
		}
	}()
	j.until(t, "the end of all that the job had", func() bool {
		left = k.left(t)
		return len(left) == 0 && len(j.Peers(t)) == 0 && process.Sockets(t, j.Name) == 0
	})
	j.checkGone(t)
}

// left returns the things that still exist.
func (k things) left(t *testing.T) (left []string) {
	t.Helper()
	known := make(map[string]bool)
	for _, name := range []string{"unix", "tcp", "tcp6"} {
		b, err := os.ReadFile("/proc/net/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for inode := range strings.FieldsSeq(string(b)) {
			known["socket:["+inode+"]"] = true
		}
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		for _, name := range held(number(filepath.Base(dir))) {
			known[name] = true
		}
	}
	for name := range k {
		if known[name] {
			left = append(left, name)
		}
	}
	return left
}

// checkHeld waits until each of n peers has fewer descriptors than before, because there is one
// peer less. Then it checks that the peers have no more shared memory than they need.
func (j *job) checkHeld(t *testing.T, n int, before map[int]int) {
	t.Helper()
	j.until(t, fmt.Sprintf("fewer descriptors of each process than %v", before), func() bool {
		for pid, count := range j.descriptors(t) {
			if count >= before[pid] {
				return false
			}
		}
		return true
	})
	j.checkMemories(t, n)
}

// descriptors returns the number of descriptors of each process.
func (j *job) descriptors(t *testing.T) map[int]int {
	t.Helper()
	counts := make(map[int]int)
	for _, p := range j.Peers(t) {
		links, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
		if err == nil {
			counts[p.PID] = len(links)
		}
	}
	return counts
}

// checkMemories waits until each of n peers has the memory of the present session, one arena of
// each member, and no other memory. One of the peers also has the memory reserved for the next
// session.
func (j *job) checkMemories(t *testing.T, n int) {
	t.Helper()
	if option[string]("transport") != "" {
		return
	}
	j.until(t, fmt.Sprintf("%d memories at each process, and one more at one of them", n+1), func() bool {
		reserved := 0
		for _, p := range j.Peers(t) {
			switch memories(p.PID) {
			case n + 1:
			case n + 2:
				reserved++
			default:
				return false
			}
		}
		return reserved == 1
	})
}

// memories returns the number of elrun's memory files that a process has open.
func memories(pid int) int {
	all := make(map[string]bool)
	for _, name := range held(pid) {
		if strings.HasPrefix(name, "memory:") {
			all[name] = true
		}
	}
	return len(all)
}
