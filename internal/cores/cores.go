// Package cores returns how many processors a program may use. runtime.NumCPU counts the processors
// that the process may run on (its affinity mask). In a container a CPU quota often allows less,
// for example the time of 4 processors on a machine with 64 processors. A program that divides
// processors among processes, or decides whether processes share them, needs the lower number.
//
//	n := cores.Count()
package cores

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// Count returns the number of processors that this process may use, at least 1: the number of
// processors that it may run on, or the CPU quota of its cgroup, rounded up, whichever is lower. It
// reads a few small files, so callers keep the result.
func Count() int { return count(os.DirFS("/"), runtime.NumCPU()) }

// count is Count with the files below root.
func count(root fs.FS, processors int) int {
	if q := quota(root); q < float64(processors) {
		return max(1, int(math.Ceil(q)))
	}
	return processors
}

// quota returns the CPU quota of this process, in processors: the lowest quota of all cgroups that
// it is in. It returns infinity if there is no quota or it cannot be read.
func quota(root fs.FS) float64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return math.Inf(1)
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return math.Inf(1)
	}
	least := math.Inf(1)
	for lines := bufio.NewScanner(bytes.NewReader(mounts)); lines.Scan(); {
		// A host may have both cgroup versions mounted, with the quota in either of them.
		if m, ok := parseMount(lines.Text()); ok {
			least = min(least, m.least(root, groupOf(string(groups), m.unified)))
		}
	}
	return least
}

// mount is a mounted cgroup hierarchy.
type mount struct {
	root    string // the group that is visible at the mount point
	at      string // the mount point
	unified bool   // cgroup version 2 (unified hierarchy)
}

// parseMount parses a line of /proc/self/mountinfo. ok is true for a cgroup hierarchy that may have
// a CPU quota. The mount point and the root of a hierarchy are before the separator " - ", the type
// and the options after it (proc(5)).
func parseMount(line string) (m mount, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	place, kind := strings.Fields(before), strings.Fields(after)
	if len(place) < 5 || len(kind) < 3 {
		return m, false
	}
	m = mount{root: unescape(place[3]), at: unescape(place[4]), unified: kind[0] == "cgroup2"}
	return m, m.unified || kind[0] == "cgroup" && listed(kind[2], "cpu")
}

// unescape decodes the octal escapes of mountinfo, such as \040 for a blank.
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}

// listed reports whether word is in a comma-separated list.
func listed(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// groupOf returns the path of this process's cgroup from the content of /proc/self/cgroup. A line
// is "0::/a/b" for version 2, and "4:cpu,cpuacct:/a/b" for version 1, for example.
func groupOf(groups string, unified bool) string {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(parts) == 3 && (unified && parts[0] == "0" && parts[1] == "" || !unified && listed(parts[1], "cpu")) {
			return parts[2]
		}
	}
	return "/"
}

// least returns the lowest quota of a group and of its visible ancestors.
func (m mount) least(root fs.FS, group string) float64 {
	inside, ok := strings.CutPrefix(group, strings.TrimRight(m.root, "/"))
	if !ok || strings.Contains(group, "..") {
		inside = "" // the path of the group starts at another root: only the group at the mount point is known
	}
	top := strings.TrimPrefix(path.Clean(m.at), "/")
	least := math.Inf(1)
	for dir := path.Clean("/" + inside); ; dir = path.Dir(dir) {
		// The kernel enforces the quota of every ancestor, so the lowest one counts.
		least = min(least, m.quota(root, path.Join(top, dir)))
		if dir == "/" {
			return least
		}
	}
}

// quota returns the quota of one group, in processors.
func (m mount) quota(root fs.FS, dir string) float64 {
	if !m.unified {
		return share(number(root, path.Join(dir, "cpu.cfs_quota_us")), number(root, path.Join(dir, "cpu.cfs_period_us")))
	}
	b, err := fs.ReadFile(root, path.Join(dir, "cpu.max"))
	words := strings.Fields(string(b))
	if err != nil || len(words) != 2 {
		return math.Inf(1)
	}
	return share(parse(words[0]), parse(words[1]))
}

// share returns quota/period; infinity if either is not above 0, which means no quota.
func share(quota, period float64) float64 {
	if quota > 0 && period > 0 {
		return quota / period
	}
	return math.Inf(1)
}

// number returns the number in a file, or 0 if the file cannot be read or has no number.
func number(root fs.FS, name string) float64 {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	return parse(strings.TrimSpace(string(b)))
}

// parse returns a whole number, or 0 for other text such as "max".
func parse(text string) float64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return float64(n)
}
