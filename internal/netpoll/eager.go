package netpoll

import "time"

const (
	// lookTime is for how long an eager reader looks again and again. A virtual machine takes as
	// long to wake.
	lookTime = 50 * time.Microsecond
	// turnTime is longer than it takes to offer the core to other processes, if none wants it.
	turnTime = 10 * time.Microsecond
	// mostLuck is how much luck is remembered. Something that comes in time brings comeLuck, a
	// miss costs 1: to look pays if every third time something comes.
	mostLuck = 8
	comeLuck = 2
	// tryAgain is how often a reader without luck waits before it tries once more, at first, and
	// mostTries after many that were in vain.
	tryAgain  = 16
	mostTries = 64
)

// eagerness knows whether it pays to look for what comes next again and again, before waiting
// for it. Where other processes want the core, or what comes takes longer, it does not.
type eagerness struct {
	luck  int // 0 to mostLuck
	waits int // since it had none
	pause int // as many waits, tryAgain to mostTries

	// Of what is awaited now.
	looking bool          // again and again
	last    bool          // no more after this time
	looked  time.Duration // for so long, without the turns of other goroutines
}

// newEagerness returns one that begins by looking.
func newEagerness() *eagerness { return &eagerness{luck: mostLuck, pause: tryAgain} }

// begin takes note that something else is awaited.
func (e *eagerness) begin() { e.looking, e.last, e.looked = false, false, 0 }

// again reports whether to look once more, others first, after nothing has come. It is told
// how long this turn was.
func (e *eagerness) again(turn time.Duration) bool {
	switch {
	case e.last:
		return false
	case !e.looking:
		e.looking = e.worth()
		return e.looking
	}
	if e.looked += turn; e.looked > lookTime {
		e.last = true
		e.missed()
	}
	return !e.last
}

// worth reports whether to begin to look.
func (e *eagerness) worth() bool {
	if e.luck > 0 {
		return true
	}
	e.waits = (e.waits + 1) % e.pause
	return e.waits == 0
}

// offered takes note of how long other processes had the core, and other goroutines their
// turn. Where that is long somebody computes, who is not to be kept from it by one that looks.
func (e *eagerness) offered(processes, goroutines time.Duration) {
	e.looked += processes
	if processes > turnTime {
		e.luck = 0
	}
	e.last = processes > turnTime || goroutines > lookTime
}

// came takes note that something has come.
func (e *eagerness) came() {
	if e.looking && !e.last {
		e.luck, e.pause = min(e.luck+comeLuck, mostLuck), tryAgain
	}
}

// missed takes note that looking was in vain.
func (e *eagerness) missed() {
	if e.luck == 0 {
		e.pause = min(2*e.pause, mostTries)
	}
	e.luck = max(e.luck-1, 0)
}
