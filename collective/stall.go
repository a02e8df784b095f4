package collective

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// Stall is a report of a call that is blocked for an unusually long time. Ranks are ranks of the
// transport.
type Stall struct {
	Call     transport.Call
	For      string        // purpose of the call, see CallOptions; or empty
	Since    time.Duration // how long the call has been blocked; if Options.Step is set, possibly the time that the step has spent in calls
	Quiet    time.Duration // how long the call has been without a message
	Waiting  int           // rank from which the caller receives, or -1
	Culprits []int         // ranks that block the call, as far as is known; the ranks of a deadlock in the order of their waits
	Phase    string        // state of the culprits: one of the Phase constants
}

// The states of culprits in a Stall.
const (
	PhaseAbsent   = "not in the call" // alive, and not in this call
	PhaseSilent   = "no answer"       // does not answer the rank that waits for it
	PhaseSlow     = "slow to answer"  // in the call, but messages from or to it take long
	PhaseInside   = "in the call"     // in the call, and nothing else is known
	PhaseDeadlock = "deadlock"        // each culprit waits for the next in another call, the last for the first
)

// Name returns the name of the blocked call, with its purpose.
func (s Stall) Name() string {
	if s.For == "" {
		return s.Call.String()
	}
	return s.For + ", " + s.Call.String()
}

// String describes the stall in one line, with ranks as numbers.
func (s Stall) String() string {
	return fmt.Sprintf("%s waits %.1fs for rank %v (%s)", s.Name(), s.Since.Seconds(), s.Culprits, s.Phase)
}

// reportKey identifies the last report, so that report can suppress repetitions.
type reportKey struct {
	by       *operation // the call that was reported
	culprits []int
	at       time.Duration
}
