package elastic

import (
	"time"
)

// ProcessState is the state of a process of this host, as the operating system reports it.
type ProcessState uint8

// The states of a process. The zero value carries no information.
const (
	ProcessUnknown ProcessState = iota // on another host, or the state cannot be read
	ProcessAsleep                      // all its threads wait
	ProcessBusy                        // a thread runs, or waits for a processor or a disk
	ProcessHalted                      // stopped, or ended
)

const (
	// confirmTime is how long a silent member is probed, directly and through helpers, before it is
	// suspected. This is the indirect probe of SWIM (Das, Gupta, Motivala: SWIM: Scalable
	// Weakly-consistent Infection-style Process Group Membership Protocol, 2002). The probes take
	// place before the limit of silence is reached, so they do not delay the detection of a real
	// failure.
	confirmTime = 300 * time.Millisecond
	// probeTime is the pause between two probes.
	probeTime = 100 * time.Millisecond
	// helpers is the number of other members that send an indirect probe.
	helpers = 2
)

// finding is the result of judging a member.
type finding uint8

const (
	trusted   finding = iota // no action is needed now
	probe                    // send a probe to the member
	suspected                // the member cannot be reached
)

// detector is a failure detector for one member: it judges whether the member can be reached. Any
// message of the member counts as an answer to all probes, unless the message reports that the
// member receives nothing from this peer. The detector is pure (times come from the caller) and not
// safe for concurrent use.
//
//	trusted --silent for nearly the limit, or reports this peer silent-->  probed
//	probed  --a message-->                                                 trusted
//	probed  --its process is busy-->                                       probed anew
//	probed  --confirmTime without a message-->                             suspected
//	probed  --a helper has reached it: after the limit in addition-->      suspected
//	probed  --silent, and its process is halted-->                         suspected
type detector struct {
	silence
	spoke   bool      // a message has arrived since the member is in the view
	asked   time.Time // when the first probe without an answer was due; zero if no answer is missing
	probed  time.Time // when the last probe was sent
	vouched time.Time // when a helper last reported a message of the member
}

// word records a message of the member. deaf is true if the member reports in it that the member
// receives nothing from this peer.
func (d *detector) word(now time.Time, deaf bool) {
	d.silence.received(now)
	d.spoke = true
	switch {
	case !deaf:
		d.asked = time.Time{}
	case d.asked.IsZero():
		d.asked = now
	}
}

// vouch records that a helper has just received an answer of the member.
func (d *detector) vouch(now time.Time) { d.vouched = now }

// restart drops the observed pauses of the member, and all probes. It keeps the fact that a message
// has arrived.
func (d *detector) restart(now time.Time) { *d = detector{silence: newSilence(now), spoke: d.spoke} }

// excuse subtracts from the member's silence the time late, in which this process itself did not
// run.
func (d *detector) excuse(late time.Duration) {
	d.silence.excuse(late)
	if !d.asked.IsZero() {
		d.asked = d.asked.Add(late)
	}
}

// limit returns how long the member may be silent. factor is the health multiplier of this process.
// The longest limit applies before the first message, as the member's pauses are unknown.
func (d *detector) limit(factor time.Duration) time.Duration {
	if !d.spoke {
		return mostSilence
	}
	return min(factor*d.silence.limit(), mostSilence)
}

// overdue reports whether the member must be probed, because it has been silent for longer than the
// limit minus factor*confirmTime.
func (d *detector) overdue(now time.Time, factor time.Duration) bool {
	return now.Sub(d.last) > d.limit(factor)-factor*confirmTime
}

// absent reports whether the member is judged even while the members enter the first session. At
// that time all pairs of members connect, and shorter silence does not count. A silent member is
// judged only if its process is halted, or if the state of its process is unknown and the silence
// exceeds mostSilence.
func (d *detector) absent(now time.Time, state func() ProcessState) bool {
	quiet := now.Sub(d.last)
	if quiet < leastSilence {
		return false
	}
	s := state()
	return s == ProcessHalted || s == ProcessUnknown && quiet > mostSilence
}

// judge returns the finding for the member at the time now. factor is the health multiplier of this
// process. judge calls state, which returns the state of the member's process, only if a probe is
// due or unanswered.
func (d *detector) judge(now time.Time, factor time.Duration, state func() ProcessState) finding {
	overdue := d.overdue(now, factor)
	if d.asked.IsZero() {
		if !overdue {
			return trusted
		}
		d.asked = now
	}
	switch state() {
	case ProcessHalted:
		if overdue || !d.spoke {
			return suspected
		}
	case ProcessBusy:
		d.asked = now // the member lives, and may be waiting for a processor
	}
	patience := factor * confirmTime
	if d.vouched.After(d.asked) {
		patience += d.limit(factor)
	}
	switch {
	case now.Sub(d.asked) >= patience:
		return suspected
	case now.Sub(d.probed) >= probeTime:
		d.probed = now
		return probe
	}
	return trusted
}

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
