package inpeer

import (
	"time"

	"github.com/elrun/elrun/launch/internal/proc"
)

const (
	// lookPeriod is the time between two looks of a sidecar at its program.
	lookPeriod = 250 * time.Millisecond
	// haltedLooks is the number of looks in turn that find the program stopped before its peer steps down.
	haltedLooks = 4
	// busyAfter is how long a sidecar waits for its program before it looks whether the program computes.
	busyAfter = 5 * time.Second
	// effortPeriod is the shortest time over which the effort of the program is measured.
	effortPeriod = time.Second
	// A program computes if it and its descendants use at least one in leastCPU seconds of a processor, or
	// move at least leastBytes a second.
	leastCPU   = 20
	leastBytes = 64 << 10
	// effortLasts is how long a program counts as computing after it was seen to compute.
	effortLasts = 5 * time.Second
)

// programWatch decides, from looks at a program, whether its peer steps down, and whether the program computes.
// It is pure: times come from the caller.
type programWatch struct {
	halts   int // looks in turn that found the program stopped
	effort  proc.Effort
	taken   time.Time // when effort was taken; zero before
	working time.Time // when the program was last seen to compute; zero before
}

// look records whether the program is stopped. It returns true if the peer has to step down.
func (p *programWatch) look(stopped bool) (stepDown bool) {
	if !stopped {
		p.halts = 0
		return false
	}
	p.halts++
	return p.halts%haltedLooks == 0
}

// computes returns whether the program computes, for which the sidecar has waited since a time, zero if it
// does not wait. It calls effort, which is expensive, if a measurement is due.
func (p *programWatch) computes(now, since time.Time, effort func() proc.Effort) bool {
	if since.IsZero() || now.Sub(since) < busyAfter {
		p.taken, p.working = time.Time{}, time.Time{}
		return false
	}
	if took := now.Sub(p.taken); took >= effortPeriod {
		e := effort()
		if !p.taken.IsZero() && (e.CPU-p.effort.CPU >= took/leastCPU || float64(e.Bytes-p.effort.Bytes) >= took.Seconds()*leastBytes) {
			p.working = now
		}
		p.effort, p.taken = e, now
	}
	return !p.working.IsZero() && now.Sub(p.working) < effortLasts
}
