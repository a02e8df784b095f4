package say

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/elrun/elrun/internal/cores"
	"github.com/elrun/elrun/internal/printable"
)

const (
	// overloadedFrom is the number of runnable threads per core above which a host counts as
	// overloaded (oversubscribed): each thread then waits several times as long as it runs.
	overloadedFrom = 4
	// overloadedWait is a second limit, for the pressure stall information of the kernel: the
	// percentage of the last ten seconds in which some thread waited for a core. A merely busy host
	// stays below it.
	overloadedWait = 90
)

// HostOverload describes the overload of this host, or returns "".
func HostOverload() string {
	load, _ := os.ReadFile("/proc/loadavg") // an error leaves load empty: nothing is known
	pressure, _ := os.ReadFile("/proc/pressure/cpu")
	return overloadOf(string(load), string(pressure), cores.Count())
}

// overloadOf is HostOverload for a host with this number of cores, given the texts of
// /proc/loadavg and /proc/pressure/cpu.
func overloadOf(load, pressure string, cores int) string {
	if fields := strings.Fields(load); len(fields) > 3 {
		running, _, _ := strings.Cut(fields[3], "/")
		n, err := strconv.Atoi(running)
		if err == nil && n > overloadedFrom*cores {
			return fmt.Sprintf("host overloaded (run queue %d on %s)", n, printable.Plural(cores, "core", "cores"))
		}
	}
	var waited float64
	if _, err := fmt.Sscanf(pressure, "some avg10=%f", &waited); err == nil && waited > overloadedWait {
		return fmt.Sprintf("host overloaded (threads waited for a core %.0f %% of 10 s)", waited)
	}
	return ""
}
