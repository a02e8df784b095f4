package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/elrun/elrun/elastic"
)

// stat is what /proc/PID/stat says of a process or a thread: its state, a letter, and when
// it was started, in clock ticks since the system was.
type stat struct {
	state byte
	start string
}

// readStat reads /proc/PID/stat or the like; ok is false where there is none.
func readStat(dir string) (s stat, ok bool) {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return stat{}, false
	}
	return parseStat(text)
}

// startField is the place of the start time behind the name.
const startField = 19

// parseStat reads "pid (name) state ...", where the name may have brackets itself.
func parseStat(text []byte) (s stat, ok bool) {
	_, rest, found := bytes.Cut(text, []byte("("))
	end := bytes.LastIndexByte(rest, ')')
	if !found || end < 0 {
		return stat{}, false
	}
	fields := bytes.Fields(rest[end+1:])
	if len(fields) == 0 || len(fields[0]) != 1 {
		return stat{}, false
	}
	s.state = fields[0][0]
	if len(fields) > startField {
		s.start = string(fields[startField])
	}
	return s, true
}

// stopped reports whether a process is stopped by a signal, as with SIGSTOP. One that a
// debugger holds is not.
func stopped(pid int) bool {
	s, ok := readStat("/proc/" + strconv.Itoa(pid))
	return ok && s.state == 'T'
}

// processName names this process in the words of inspect: its ID, which is used again,
// with the time of its start. It is empty where that is not known.
func processName() string {
	s, ok := readStat("/proc/self")
	if !ok || s.start == "" {
		return ""
	}
	return fmt.Sprintf("%d:%s", os.Getpid(), s.start)
}

// inspect says what the process of a peer of the same launcher does. Where there is no
// such process under its ID, as with peers in containers of their own, it says nothing,
// but that a process has ended which left a zombie.
func inspect(m elastic.Member) elastic.ProcessState {
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
	// The first thread waits; others may not.
	threads, _ := filepath.Glob(dir + "/task/*") // the pattern is valid
	for _, thread := range threads {
		if s, ok := readStat(thread); ok && processState(s.state) == elastic.ProcessBusy {
			return elastic.ProcessBusy
		}
	}
	return elastic.ProcessAsleep
}

// processState translates the letter of a state. A process that a debugger holds is as one
// that waits.
func processState(letter byte) elastic.ProcessState {
	switch letter {
	case 'R', 'D':
		return elastic.ProcessBusy
	case 'T', 'Z', 'X':
		return elastic.ProcessHalted
	}
	return elastic.ProcessAsleep
}
