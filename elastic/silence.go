package elastic

import "time"

const (
	// leastSilence is the least time without a word after which a member is suspected:
	// well above the pauses that a loaded machine makes, and short enough for a member
	// to be out within two seconds.
	leastSilence = 1300 * time.Millisecond
	// silenceFactor times the longest pause of late is the limit if that is longer.
	silenceFactor = 4
	// mostSilence bounds the limit.
	mostSilence = 30 * time.Second
	// pauseHalving is the time in which what was learned of a long pause is halved.
	pauseHalving = 20 * time.Second
)

// silence judges how long a member may be silent, by the pauses that it has made. It
// is pure: times come from the caller.
type silence struct {
	last  time.Time     // of the last word
	pause time.Duration // the longest of late, as it was at decayed
	as    time.Time     // when pause was that long
}

// newSilence begins at a time at which the member counts as heard.
func newSilence(now time.Time) silence { return silence{last: now, as: now} }

// heard notes a word of the member.
func (s *silence) heard(now time.Time) {
	if pause := now.Sub(s.last); pause >= s.decayed(now) {
		s.pause, s.as = pause, now
	}
	s.last = now
}

// excuse takes a time off the present pause in which this process did not run itself.
func (s *silence) excuse(d time.Duration) { s.last = s.last.Add(d) }

// decayed returns what is left of the longest pause. It falls by half, and evenly, in
// each pauseHalving, which needs no more than a shift and a line.
func (s *silence) decayed(now time.Time) time.Duration {
	halves := now.Sub(s.as) / pauseHalving
	if halves > 30 {
		return 0
	}
	part := now.Sub(s.as) % pauseHalving
	whole := s.pause >> halves
	return whole - time.Duration(float64(whole)/2*(float64(part)/float64(pauseHalving)))
}

// limit returns how long the member may be silent since its last word.
func (s *silence) limit() time.Duration {
	return min(max(leastSilence, silenceFactor*s.decayed(s.last)), mostSilence)
}
