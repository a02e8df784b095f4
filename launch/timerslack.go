package launch

import (
	"time"

	"github.com/elrun/elrun/internal/cores"
)

// The timers of a process may fire late, by at most its timer slack; the kernel then wakes the
// process once for several timers. On a host with many peers per core, the short timers of the Go
// runtimes would otherwise take a large part of the processor time.
const (
	// crowdedFrom is the number of peers per core above which the peers of a host get crowdedSlack.
	// Up to it they keep the kernel's default, 50 µs on Linux.
	crowdedFrom = 4
	// crowdedSlack is well below the shortest period of a peer's timers that others depend on: 50 ms
	// between heartbeats.
	crowdedSlack = 5 * time.Millisecond
)

// isCrowded reports whether a host with this number of peers is crowded.
func isCrowded(peers int) bool { return peers > crowdedFrom*cores.Count() }
