package stall

import "time"

const (
	// SilentAfter is how long a rank may leave silentAsks unanswered, as signals may be lost,
	// before it counts as one that does not answer.
	SilentAfter = 500 * time.Millisecond
	silentAsks  = 3
	// confirmAsks is how many it leaves unanswered where another rank has said that it does.
	confirmAsks = 2
	// slowAfter is how long an answer takes at least that says something about a link.
	slowAfter = 100 * time.Millisecond
	// oneLook is within which time what a rank is asked about several calls is one ask.
	oneLook = 25 * time.Millisecond
)

// contact is what asks tell of a rank, whichever call they are for.
type contact struct {
	pending time.Duration // when it was asked what it has not answered; 0 for nothing
	missing int           // asks since then
	asked   time.Duration // when last
	slowest time.Duration // of its answers
}

// ask notes that the rank is asked.
func (c *contact) ask(now time.Duration) {
	if c.pending == 0 {
		c.pending, c.missing = now, 1
	} else if now-c.asked >= oneLook {
		c.missing++
	}
	c.asked = now
}

// tell takes in its answer to what it was asked at a time.
func (c *contact) tell(at, now time.Duration) {
	c.slowest = max(c.slowest, now-at)
	switch {
	case at >= c.asked:
		c.pending = 0
	case c.pending != 0 && at >= c.pending:
		c.pending, c.missing = c.asked, 1 // what it was asked last has no answer yet
	}
}

// took returns how long the rank takes to answer, as far as is known at now.
func (c *contact) took(now time.Duration) time.Duration {
	if c.pending == 0 {
		return c.slowest
	}
	return max(c.slowest, now-c.pending)
}

// silent reports whether the rank does not answer. A signal never overtakes a message:
// so the same is seen where a message of that rank is on its way for long, and one that
// answers has not sent what is waited for.
func (c *contact) silent(now time.Duration) bool {
	return c.pending != 0 && c.missing >= silentAsks && now-c.pending >= SilentAfter
}

// settled reports whether the rank has answered, or not for so long that this tells
// something.
func (c *contact) settled(now time.Duration) bool {
	return c.pending == 0 || now-c.pending >= slowAfter
}

// confirms reports whether the rank is as silent to this one as another has said.
func (c *contact) confirms(now time.Duration) bool {
	return c.pending != 0 && c.missing >= confirmAsks && now-c.pending >= slowAfter
}
