package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
)

// Stall describes a call that is held up unusually long. Ranks count in the
// transport.
type Stall struct {
	Call     transport.Call
	For      string        // what its caller said that it is for, see CallOptions; or empty
	Since    time.Duration // how long it has been held up, or its step, where Options.Step tells of steps
	Quiet    time.Duration // how long it has been without a message
	Waiting  int           // rank from which the caller receives, or -1
	Culprits []int         // ranks that hold up the call, as far as is known; those of a deadlock in the order of their waits
	Phase    string        // what the culprits do: one of the Phase constants
}

// Phases of a Stall.
const (
	PhaseAbsent   = "not in the call" // it lives and does something else
	PhaseSilent   = "no answer"       // to a rank that waits for it
	PhaseSlow     = "slow to answer"  // in the call, but messages from or to it take long
	PhaseInside   = "in the call"     // and nothing else is known
	PhaseDeadlock = "deadlock"        // each of them waits for the next in another call, the last for the first
)

// phase says in words why a chase has ended.
func phase(w stall.Why) string {
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

// What says which call is held up.
func (s Stall) What() string {
	if s.For == "" {
		return s.Call.String()
	}
	return s.For + ", " + s.Call.String()
}

// String says who is waited for, in one line without ranks' names.
func (s Stall) String() string {
	return fmt.Sprintf("%s waits %.1fs for rank %v (%s)", s.What(), s.Since.Seconds(), s.Culprits, s.Phase)
}

// report tells of a call that is held up as far as s says, unless the same has been said
// just now of another one: as a rule several calls wait for the same rank.
func (w *world) report(o *operation, s Stall, now time.Duration) {
	o.roll.reported = s.Since
	if w.opts.OnStall == nil {
		return
	}
	s.Call, s.For, s.Waiting = o.env.Call, o.purpose, int(o.waiting.Load())-1
	s.Culprits, s.Phase = w.blame(o, now)
	same := w.said.by != o && slices.Equal(w.said.culprits, s.Culprits)
	if same && now-w.said.at < max(stall.After, s.Since/4) {
		return
	}
	w.said = said{o, s.Culprits, now}
	w.opts.OnStall(s)
}

// blame says who holds up o, and what they do.
func (w *world) blame(o *operation, now time.Duration) ([]int, string) {
	ranks, why := w.chase.Blame(o.cause(), now)
	return ranks, phase(why)
}

// said is the last report.
type said struct {
	by       *operation
	culprits []int
	at       time.Duration
}
