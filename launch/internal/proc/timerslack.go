package proc

import (
	"time"

	"github.com/elrun/elrun/internal/cores"
)

// The timers of a process may fire late, by at most its timer slack; the kernel then wakes the
// process once for several timers. On a host with many peers per core, the short timers of the Go
// runtimes would otherwise take a large part of the processor time.
const (
	// crowdedFrom is the number of peers per core above which the peers of a host get crowdedSlack.
	// With fewer peers each peer keeps the kernel's default timer slack, 50 µs on Linux.
	crowdedFrom = 4
	// crowdedSlack is the timer slack on a crowded host. It is well below 50 ms, the interval of
	// heartbeats, which is the shortest period on which other peers depend.
	crowdedSlack = 5 * time.Millisecond
)

// isCrowded reports whether a host with this number of peers is crowded.
func isCrowded(peers int) bool { return peers > crowdedFrom*cores.Count() }
