package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/elrun/elrun/internal/cores"
)

const (
	// overloadedFrom is how many threads there are to run for each core where a host is called
	// overloaded: each then waits longer than it runs, many times over.
	overloadedFrom = 4
	// overloadedWait is the part of ten seconds, in percent, in which some thread waited for a
	// core where that is all that is known. One that is busy has less.
	overloadedWait = 90
)

// hostOverload says that this host has far more to do than it can, and how much, or "".
func hostOverload() string {
	load, _ := os.ReadFile("/proc/loadavg") // where there is none nothing is known
	pressure, _ := os.ReadFile("/proc/pressure/cpu")
	return overloadOf(string(load), string(pressure), cores.Count())
}

// overloadOf is hostOverload of a host with so many cores, in the words of /proc/loadavg and of
// /proc/pressure/cpu.
func overloadOf(load, pressure string, cores int) string {
	if fields := strings.Fields(load); len(fields) > 3 {
		running, _, _ := strings.Cut(fields[3], "/")
		n, err := strconv.Atoi(running)
		if err == nil && n > overloadedFrom*cores {
			return fmt.Sprintf("host overloaded (run queue %d on %s)", n, plural(cores, "core", "cores"))
		}
	}
	var waited float64
	if _, err := fmt.Sscanf(pressure, "some avg10=%f", &waited); err == nil && waited > overloadedWait {
		return fmt.Sprintf("host overloaded (threads waited for a core %.0f %% of 10 s)", waited)
	}
	return ""
}
