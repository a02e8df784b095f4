package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/elrun/elrun/elastic"
)

// stat has some fields of /proc/PID/stat of a process or a thread. A text with fewer fields leaves
// the later ones zero.
type stat struct {
	state  byte // a letter
	parent int
	ticks  int64  // processor time of the process, and of the children that it has waited for, in clock ticks
	start  string // start time in clock ticks since boot
}

// readStat reads the file stat in dir, a folder such as /proc/PID. ok is false if that fails.
func readStat(dir string) (s stat, ok bool) {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return stat{}, false
	}
	return parseStat(text)
}

// Indices of the fields after the name.
const (
	parentField = 1
	timeField   = 11 // the first of four times
	startField  = 19
)

// parseStat parses "pid (name) state ...", where the name may contain brackets.
func parseStat(text []byte) (s stat, ok bool) {
	_, rest, found := bytes.Cut(text, []byte("("))
	// The last bracket ends the name: a process may choose a name with brackets and spaces.
	end := bytes.LastIndexByte(rest, ')')
	if !found || end < 0 {
		return stat{}, false
	}
	fields := bytes.Fields(rest[end+1:])
	if len(fields) == 0 || len(fields[0]) != 1 {
		return stat{}, false
	}
	s.state = fields[0][0]
	if len(fields) > parentField {
		s.parent, _ = strconv.Atoi(string(fields[parentField])) // 0 is no process
	}
	if len(fields) > startField {
		for _, f := range fields[timeField : timeField+4] {
			n, _ := strconv.ParseInt(string(f), 10, 64) // 0 is no time
			s.ticks += n
		}
		s.start = string(fields[startField])
	}
	return s, true
}

// Stopped reports whether a process is stopped by a signal, such as SIGSTOP. A process that a
// debugger holds is not stopped in this sense.
func Stopped(pid int) bool {
	s, ok := readStat("/proc/" + strconv.Itoa(pid))
	return ok && s.state == 'T'
}

// ProcessName returns a name of this process for Inspect: its process ID with its start time,
// because process IDs are reused. It is "" if unknown.
func ProcessName() string {
	s, ok := readStat("/proc/self")
	if !ok || s.start == "" {
		return ""
	}
	return fmt.Sprintf("%d:%s", os.Getpid(), s.start)
}

// Inspect returns the state of a peer's process on this host. A zombie counts as ended. The state
// is unknown if no process has that ID and start time, for example because the peer is in another
// container.
func Inspect(m elastic.Member) elastic.ProcessState {
	pid, start, ok := strings.Cut(m.Process, ":")
	if _, err := strconv.Atoi(pid); !ok || err != nil {
		return elastic.ProcessUnknown
	}
	dir := "/proc/" + pid
	s, ok := readStat(dir)
	if !ok || s.start != start {
		return elastic.ProcessUnknown
	}
	if state := processState(s.state); state != elastic.ProcessAsleep {
		return state
	}
	// The main thread is waiting, but other threads may be running.
	threads, _ := filepath.Glob(dir + "/task/*") // no error: the pattern is valid
	for _, thread := range threads {
		if s, ok := readStat(thread); ok && processState(s.state) == elastic.ProcessBusy {
			return elastic.ProcessBusy
		}
	}
	return elastic.ProcessAsleep
}

// processState translates the state letter of /proc (proc(5)). A process that a debugger holds
// (t) counts as asleep, because the debugger will continue it.
func processState(letter byte) elastic.ProcessState {
	switch letter {
	case 'R', 'D':
		return elastic.ProcessBusy
	case 'T', 'Z', 'X':
		return elastic.ProcessHalted
	}
	return elastic.ProcessAsleep
}
