package elastic

import "time"

const (
	// mostLateness bounds the score of health: limits become at most 1 + mostLateness
	// times as long.
	mostLateness = 8
	// healthStep is the time without a sign of lateness in which the score falls by one.
	healthStep = 2 * time.Second
)

// health scores how late this process is itself. Who runs late hears late, and blames
// others for it; so its limits are longer by the factor that health returns. This is the
// local health multiplier of Lifeguard (Dadgar, Phillips, Currey: Lifeguard: Local Health
// Awareness for More Accurate Failure Detection, 2018). It is pure: times come from the
// caller.
type health struct {
	score int
	since time.Time // of the last change of score
}

// worse notes a sign of lateness: a late tick, a suspicion that was wrong, helpers that
// were asked and not heard.
func (h *health) worse(now time.Time) {
	h.recover(now)
	h.score, h.since = min(h.score+1, mostLateness), now
}

// recover lets the score fall with time.
func (h *health) recover(now time.Time) {
	steps := int(now.Sub(h.since) / healthStep)
	if h.score == 0 || steps <= 0 {
		return
	}
	h.score = max(0, h.score-steps)
	h.since = h.since.Add(time.Duration(steps) * healthStep)
}

// factor returns by how much limits are longer: 1 where nothing is late.
func (h *health) factor(now time.Time) time.Duration {
	h.recover(now)
	return time.Duration(1 + h.score)
}

// worst reports whether the score cannot rise.
func (h *health) worst() bool { return h.score == mostLateness }
