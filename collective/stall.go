package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
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

// phaseOf converts the Cause at the end of a chain of waits to a Phase constant.
func phaseOf(w stall.Cause) string {
	switch w {
	case stall.Absent:
		return PhaseAbsent
	case stall.Silent:
		return PhaseSilent
	case stall.Slow:
		return PhaseSlow
	case stall.Deadlock:
		return PhaseDeadlock
	}
	return PhaseInside
}

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

// report reports the stall s of o to OnStall. It suppresses the report if the same culprits were
// reported recently for another call: usually several calls wait for the same rank.
func (w *watchdog) report(o *operation, s Stall, now time.Duration) {
	o.watch.reported = s.Since
	if w.opts.OnStall == nil {
		return
	}
	s.Call, s.For, s.Waiting = o.env.Call, o.purpose, int(o.recvFrom.Load())-1
	s.Culprits, s.Phase = w.culprits(o, now)
	// The same call is reported again, at growing intervals, so that long stalls stay visible.
	same := w.lastReport.by != o && slices.Equal(w.lastReport.culprits, s.Culprits)
	if same && now-w.lastReport.at < max(stall.After, s.Since/4) {
		return
	}
	w.lastReport = reportKey{o, s.Culprits, now}
	w.opts.OnStall(s)
}

// culprits returns the ranks that block o, and their Phase.
func (w *watchdog) culprits(o *operation, now time.Duration) ([]int, string) {
	ranks, why := w.chase.Blame(o.blockingWait(), now)
	return ranks, phaseOf(why)
}

// reportKey identifies the last report, so that report can suppress repetitions.
type reportKey struct {
	by       *operation // the call that was reported
	culprits []int
	at       time.Duration
}
