package elastic

import "time"

// tickClock counts the ticks of a driver and detects late ticks. The driver's goroutine owns it. It
// is pure: times come from the caller.
type tickClock struct {
	health health    // lateness of this process
	ticks  int       // since the start
	ticked time.Time // time of the last tick
}

// advance counts span ticks that have passed by now. It returns the time for which this process did
// not run, or 0 if the ticks are late by at most lateTick, which is ordinary scheduling.
func (t *tickClock) advance(now time.Time, span int) time.Duration {
	late := now.Sub(t.ticked) - time.Duration(span)*tickPeriod
	t.ticked = now
	t.ticks += span
	if late <= lateTick {
		return 0
	}
	t.health.worse(now)
	return late
}
