// Package cores tells how many processors a program may use. The runtime counts those that
// the system lets it run on, but in a container a quota of time often leaves it fewer: of 64
// cores the time of 4. Who divides cores among processes, or wants to know whether processes
// have to share them, asks here.
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

// Count returns the number of processors that this process may use: those it may run on, or
// as many as its cgroup's quota is worth, rounded up, if these are fewer; at least 1. It
// reads some small files, so the caller keeps the answer where it counts.
func Count() int { return count(os.DirFS("/"), runtime.NumCPU()) }

// count is Count for a tree of files.
func count(root fs.FS, processors int) int {
	if q := quota(root); q < float64(processors) {
		return max(1, int(math.Ceil(q)))
	}
	return processors
}

// quota returns the processors' time that the cgroups of this process leave it, in
// processors; infinity if they do not bound it, or cannot be read.
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
		if m, ok := parseMount(lines.Text()); ok {
			least = min(least, m.least(root, groupOf(string(groups), m.unified)))
		}
	}
	return least
}

// mount is a hierarchy of cgroups in the tree of files.
type mount struct {
	root    string // the group that is seen at the place
	at      string // the place
	unified bool   // of version 2
}

// parseMount reads a line of mountinfo, and reports whether it is a hierarchy that may bound
// the time of processors.
func parseMount(line string) (m mount, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	place, kind := strings.Fields(before), strings.Fields(after)
	if len(place) < 5 || len(kind) < 3 {
		return m, false
	}
	m = mount{root: unescape(place[3]), at: unescape(place[4]), unified: kind[0] == "cgroup2"}
	return m, m.unified || kind[0] == "cgroup" && listed(kind[2], "cpu")
}

// unescape replaces what mountinfo writes for blanks and the like, as \040.
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}

// listed reports whether word is in a list that commas separate.
func listed(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// groupOf returns this process's cgroup by /proc/self/cgroup: lines such as "0::/a/b" of
// version 2 and "4:cpu,cpuacct:/a/b" of version 1.
func groupOf(groups string, unified bool) string {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(parts) == 3 && (unified && parts[0] == "0" && parts[1] == "" || !unified && listed(parts[1], "cpu")) {
			return parts[2]
		}
	}
	return "/"
}

// least returns the smallest quota of a group and those above it, as far as they are seen.
func (m mount) least(root fs.FS, group string) float64 {
	inside, ok := strings.CutPrefix(group, strings.TrimRight(m.root, "/"))
	if !ok || strings.Contains(group, "..") {
		inside = "" // it is named from another root: all that is seen is the one at the place
	}
	top := strings.TrimPrefix(path.Clean(m.at), "/")
	least := math.Inf(1)
	for dir := path.Clean("/" + inside); ; dir = path.Dir(dir) {
		least = min(least, m.quota(root, path.Join(top, dir)))
		if dir == "/" {
			return least
		}
	}
}

// quota returns what one group may use, in processors.
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

// share returns a quota of a period; infinity where one of them is not above 0, which stands
// for no bound.
func share(quota, period float64) float64 {
	if quota > 0 && period > 0 {
		return quota / period
	}
	return math.Inf(1)
}

// number reads a file with one number, 0 if it has none.
func number(root fs.FS, name string) float64 {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	return parse(strings.TrimSpace(string(b)))
}

// parse reads a whole number, 0 if it is none, as "max".
func parse(text string) float64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return float64(n)
}
