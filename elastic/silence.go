package elastic

import "time"

const (
	// leastSilence is the lower bound of the limit of silence. It is well above the usual pauses on
	// a loaded machine, and short enough to put out a dead member within two seconds.
	leastSilence = 1300 * time.Millisecond
	// The limit is silenceFactor times the longest recent pause, if that is longer than
	// leastSilence.
	silenceFactor = 4
	// mostSilence is the upper bound of the limit.
	mostSilence = 30 * time.Second
	// pauseHalving is the half-life of the longest observed pause.
	pauseHalving = 20 * time.Second
)

// silence is an adaptive timeout for one member: a multiple of the decaying maximum of its pauses.
// It is pure: times come from the caller.
type silence struct {
	last  time.Time     // time of the last message
	pause time.Duration // longest recent pause, not decayed yet
	as    time.Time     // when pause was observed
}

// newSilence returns a silence that counts the member as heard at now.
func newSilence(now time.Time) silence { return silence{last: now, as: now} }

// received records a message of the member.
func (s *silence) received(now time.Time) {
	if pause := now.Sub(s.last); pause >= s.decayed(now) {
		s.pause, s.as = pause, now
	}
	s.last = now
}

// excuse subtracts from the present pause a time in which this process itself did not run.
func (s *silence) excuse(d time.Duration) { s.last = s.last.Add(d) }

// decayed returns the longest pause, decayed until now. The value halves in each period of
// pauseHalving, with linear interpolation within a period, so that a shift and a product suffice.
func (s *silence) decayed(now time.Time) time.Duration {
	halves := now.Sub(s.as) / pauseHalving
	if halves > 30 {
		return 0
	}
	part := now.Sub(s.as) % pauseHalving
	whole := s.pause >> halves
	return whole - time.Duration(float64(whole)/2*(float64(part)/float64(pauseHalving)))
}

// limit returns how long the member may be silent since its last message.
func (s *silence) limit() time.Duration {
	return min(max(leastSilence, silenceFactor*s.decayed(s.last)), mostSilence)
}
