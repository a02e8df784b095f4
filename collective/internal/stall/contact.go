package stall

import "time"

const (
	// SilentAfter and silentAsks define silence: a rank is silent if it has left silentAsks asks
	// unanswered, the oldest of them for SilentAfter. Several asks are required, as signals may be
	// lost.
	SilentAfter = 500 * time.Millisecond
	silentAsks  = 3
	// confirmAsks is the number of unanswered asks of this rank that confirms another rank's report
	// that a rank is silent.
	confirmAsks = 2
	// slowAfter is the response time from which a link counts as slow. Shorter ones are common on a
	// busy host.
	slowAfter = 100 * time.Millisecond
	// askWindow is the window within which asks about several calls count as one ask.
	askWindow = 25 * time.Millisecond
)

// contact holds the response times of one rank, over all calls.
type contact struct {
	pending time.Duration // time of the oldest unanswered ask; 0 for none
	// unanswered is the number of asks without an answer, from the ask at time pending on.
	unanswered int
	asked      time.Duration // time of the last ask
	slowest    time.Duration // longest response time
}

// ask records an ask to the rank.
func (c *contact) ask(now time.Duration) {
	if c.pending == 0 {
		c.pending, c.unanswered = now, 1
	} else if now-c.asked >= askWindow {
		c.unanswered++
	}
	c.asked = now
}

// tell records the rank's answer to the ask that was sent at the time at.
func (c *contact) tell(at, now time.Duration) {
	c.slowest = max(c.slowest, now-at)
	switch {
	case at >= c.asked:
		c.pending = 0
	case c.pending != 0 && at >= c.pending:
		c.pending, c.unanswered = c.asked, 1 // the last ask is still unanswered
	}
}

// responseTime returns the response time of the rank at now. The age of an unanswered ask is a
// lower bound.
func (c *contact) responseTime(now time.Duration) time.Duration {
	if c.pending == 0 {
		return c.slowest
	}
	return max(c.slowest, now-c.pending)
}

// silent reports whether the rank does not answer. A signal may wait behind a message of the same
// pair. So a rank seems silent while it sends a long message. And if the answer of a rank arrives
// before the awaited message, the rank had not sent that message before it answered.
func (c *contact) silent(now time.Duration) bool {
	return c.pending != 0 && c.unanswered >= silentAsks && now-c.pending >= SilentAfter
}

// settled reports whether the rank has answered, or has left an ask unanswered for
// slowAfter.
func (c *contact) settled(now time.Duration) bool {
	return c.pending == 0 || now-c.pending >= slowAfter
}

// confirms reports whether the rank is silent towards this rank as well, after another rank
// has reported it as silent.
func (c *contact) confirms(now time.Duration) bool {
	return c.pending != 0 && c.unanswered >= confirmAsks && now-c.pending >= slowAfter
}
