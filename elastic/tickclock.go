package elastic

import (
	"time"
)

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

const (
	// mostLateness bounds the health score: limits grow by a factor of at most 1 + mostLateness.
	mostLateness = 8
	// healthStep is the time without a sign of lateness after which the score falls by one.
	healthStep = 2 * time.Second
)

// health scores the lateness of this process itself. A process that runs late receives messages
// late and would blame others for it, so its limits are multiplied by the result of factor. This is
// the local health multiplier of Lifeguard (Dadgar, Phillips, Currey: Lifeguard: Local Health
// Awareness for More Accurate Failure Detection, 2018). It is pure: times come from the caller.
type health struct {
	score int       // from 0, healthy, to mostLateness
	since time.Time // time of the last change of score
}

// worse records a sign of lateness: a late tick, a wrong suspicion, or helpers whose answers did
// not arrive.
func (h *health) worse(now time.Time) {
	h.recover(now)
	h.score, h.since = min(h.score+1, mostLateness), now
}

// recover lowers the score with time.
func (h *health) recover(now time.Time) {
	steps := int(now.Sub(h.since) / healthStep)
	if h.score == 0 || steps <= 0 {
		return
	}
	h.score = max(0, h.score-steps)
	h.since = h.since.Add(time.Duration(steps) * healthStep)
}

// factor returns the multiplier of limits: 1 without lateness.
func (h *health) factor(now time.Time) time.Duration {
	h.recover(now)
	return time.Duration(1 + h.score)
}

// worst reports whether the score is at its maximum.
func (h *health) worst() bool { return h.score == mostLateness }
