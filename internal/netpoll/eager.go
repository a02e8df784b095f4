package netpoll

import "time"

const (
	// lookTime is the greatest duration of busy-polling for one message. To wake a sleeping reader
	// takes about as long in a virtual machine.
	lookTime = 50 * time.Microsecond
	// turnTime is a duration above the cost of a sched_yield when no other process wants the core.
	turnTime = 10 * time.Microsecond
	// mostLuck is the greatest credit. A message that arrives during busy-polling adds comeLuck, a
	// miss subtracts 1. So busy-polling goes on if at least every third message arrives in time.
	mostLuck = 8
	comeLuck = 2
	// tryAgain is the number of messages without busy-polling after which a reader without credit
	// tries it again; each failed try doubles the number, up to mostTries.
	tryAgain  = 16
	mostTries = 64
)

// eagerness decides for each message whether to busy-poll for it before sleeping. It pays where the
// message comes within lookTime, and costs too much where other processes want the core. The
// decision is by a credit of recent hits and misses.
type eagerness struct {
	luck  int // credit, 0 to mostLuck
	waits int // messages since the credit was used up, modulo pause
	pause int // messages between tries without credit, tryAgain to mostTries

	// State of the present message.
	looking bool          // busy-polling has begun
	last    bool          // busy-polling has ended
	looked  time.Duration // time spent in busy-polling, without the turns of other goroutines
}

// newEagerness returns an eagerness with full credit.
func newEagerness() *eagerness { return &eagerness{luck: mostLuck, pause: tryAgain} }

// begin starts a new message.
func (e *eagerness) begin() { e.looking, e.last, e.looked = false, false, 0 }

// again reports whether to poll once more after a poll without data, once other goroutines had
// their turn. turn is the duration of this poll.
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

// worth reports whether to start busy-polling for a message.
func (e *eagerness) worth() bool {
	if e.luck > 0 {
		return true
	}
	e.waits = (e.waits + 1) % e.pause
	return e.waits == 0
}

// offered records how long other processes had the core, and other goroutines the processor,
// between two polls. A long duration means that they compute; busy-polling would take the core away
// from them, so it ends.
func (e *eagerness) offered(processes, goroutines time.Duration) {
	e.looked += processes
	if processes > turnTime {
		e.luck = 0
	}
	e.last = processes > turnTime || goroutines > lookTime
}

// came records that the message has arrived.
func (e *eagerness) came() {
	if e.looking && !e.last {
		e.luck, e.pause = min(e.luck+comeLuck, mostLuck), tryAgain
	}
}

// missed records that busy-polling ended without the message.
func (e *eagerness) missed() {
	if e.luck == 0 {
		e.pause = min(2*e.pause, mostTries)
	}
	e.luck = max(e.luck-1, 0)
}
