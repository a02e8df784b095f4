package elastic

import "time"

// ProcessState is what the system of a host says of a process on it.
type ProcessState uint8

// The states. The zero state says nothing.
const (
	ProcessUnknown ProcessState = iota // on another host, or not to be found out
	ProcessAsleep                      // all its threads wait for something
	ProcessBusy                        // a thread runs, waits for a processor or for a disk
	ProcessHalted                      // it was stopped, or has ended
)

const (
	// confirmTime is how long a silent member is asked, directly and through others,
	// before it is suspected: the indirect probe of SWIM (Das, Gupta, Motivala 2002). It
	// lies within the limit of silence, so that it costs no time where the silence is real.
	confirmTime = 300 * time.Millisecond
	// probeTime is the time between two questions.
	probeTime = 100 * time.Millisecond
	// helpers is how many others are asked.
	helpers = 2
)

// finding is what comes of a look at a member.
type finding uint8

const (
	trusted   finding = iota // there is nothing to do, or not yet
	probe                    // it is to be asked for a word
	suspected                // it cannot be reached
)

// detector judges whether a member can be reached. A word of it that says that it hears
// this member answers every question. It is pure: times come from the caller.
//
//	trusted --silent for nearly the limit, or does not hear this member--> asked
//	asked   --a word-->                                                    trusted
//	asked   --its process is busy-->                                       asked anew
//	asked   --confirmTime without a word-->                                suspected
//	asked   --others have reached it: the limit more without a word-->     suspected
//	asked   --silent, and its process is halted-->                         suspected
type detector struct {
	silence
	spoke   bool      // it has said a word since it is a member
	asked   time.Time // when it was first asked for a word; zero if it owes none
	probed  time.Time // when it was last asked
	vouched time.Time // when another said last that it hears the member
}

// word notes a word of the member; deaf says that it does not hear this one.
func (d *detector) word(now time.Time, deaf bool) {
	d.silence.heard(now)
	d.spoke = true
	switch {
	case !deaf:
		d.asked = time.Time{}
	case d.asked.IsZero():
		d.asked = now
	}
}

// vouch notes that another member has heard this one just now.
func (d *detector) vouch(now time.Time) { d.vouched = now }

// restart forgets what was learned of the member's silence, not that it has spoken.
func (d *detector) restart(now time.Time) { *d = detector{silence: newSilence(now), spoke: d.spoke} }

// excuse takes a time off in which this process did not run itself.
func (d *detector) excuse(late time.Duration) {
	d.silence.excuse(late)
	if !d.asked.IsZero() {
		d.asked = d.asked.Add(late)
	}
}

// limit returns how long the member may be silent. factor is that of this process's
// health. Nothing is known of the pauses of a member that has not spoken yet.
func (d *detector) limit(factor time.Duration) time.Duration {
	if !d.spoke {
		return mostSilence
	}
	return min(factor*d.silence.limit(), mostSilence)
}

// overdue reports whether the member is silent for so long that it must be asked.
func (d *detector) overdue(now time.Time, factor time.Duration) bool {
	return now.Sub(d.last) > d.limit(factor)-factor*confirmTime
}

// absent reports whether the member is to be judged though the first session is still
// being entered, when connections are made between all members at once: if its process
// is halted, or on another host and silent for as long as a member may ever be.
func (d *detector) absent(now time.Time, state func() ProcessState) bool {
	quiet := now.Sub(d.last)
	if quiet < leastSilence {
		return false
	}
	s := state()
	return s == ProcessHalted || s == ProcessUnknown && quiet > mostSilence
}

// judge looks at the member. state says what its process does and is asked only of a
// member that owes a word.
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
		d.asked = now // it lives, and waits for its turn
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
