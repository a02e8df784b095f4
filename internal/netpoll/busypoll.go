package netpoll

import "time"

const (
	// maxPollTime is the greatest duration of busy-polling for one message. In a virtual machine,
	// waking a sleeping reader takes about as long.
	maxPollTime = 50 * time.Microsecond
	// maxYieldTime is the longest sched_yield that still shows that no other process wants the
	// core; it is above the cost of the call.
	maxYieldTime = 10 * time.Microsecond
	// maxCredit is the greatest credit. A message that arrives during busy-polling adds hitCredit,
	// a miss subtracts 1. So busy-polling goes on if at least every third message arrives in time.
	maxCredit = 8
	hitCredit = 2
	// A reader without credit tries busy-polling again after minRetry messages. Each failed try
	// doubles this number, up to maxRetry.
	minRetry = 16
	maxRetry = 64
)

// busyPoller decides for each message whether to busy-poll for it before sleeping. Busy-polling
// pays if the message comes within maxPollTime, and costs too much if other processes want the
// core. The busyPoller decides by a credit, which counts recent hits and misses.
type busyPoller struct {
	credit        int // credit, 0 to maxCredit
	skipped       int // messages since the credit was used up, modulo retryInterval
	retryInterval int // messages between tries without credit, minRetry to maxRetry

	// State of the present message.
	polling bool          // busy-polling has begun
	done    bool          // busy-polling has ended
	polled  time.Duration // time spent in busy-polling, without the time of other goroutines
}

// newBusyPoller returns a busyPoller with full credit.
func newBusyPoller() *busyPoller { return &busyPoller{credit: maxCredit, retryInterval: minRetry} }

// startMessage starts a new message.
func (b *busyPoller) startMessage() { b.polling, b.done, b.polled = false, false, 0 }

// pollAgain reports whether to poll once more after a poll without data. took is the duration of
// that poll, without the time of other goroutines and processes.
func (b *busyPoller) pollAgain(took time.Duration) bool {
	switch {
	case b.done:
		return false
	case !b.polling:
		b.polling = b.shouldPoll()
		return b.polling
	}
	if b.polled += took; b.polled > maxPollTime {
		b.done = true
		b.recordMiss()
	}
	return !b.done
}

// shouldPoll reports whether to start busy-polling for a message.
func (b *busyPoller) shouldPoll() bool {
	if b.credit > 0 {
		return true
	}
	b.skipped = (b.skipped + 1) % b.retryInterval
	return b.skipped == 0
}

// recordYield records how long other processes had the core, and other goroutines the processor,
// between two polls. After a long duration busy-polling ends, because it would take the core away
// from their computation.
func (b *busyPoller) recordYield(processes, goroutines time.Duration) {
	b.polled += processes
	if processes > maxYieldTime {
		b.credit = 0
	}
	// A goroutine that computes for long needs the processor, but this does not predict the next
	// message: it ends the present try without using up the credit.
	b.done = processes > maxYieldTime || goroutines > maxPollTime
}

// recordHit records that the message has arrived.
func (b *busyPoller) recordHit() {
	if b.polling && !b.done {
		b.credit, b.retryInterval = min(b.credit+hitCredit, maxCredit), minRetry
	}
}

// recordMiss records that busy-polling ended without the message.
func (b *busyPoller) recordMiss() {
	if b.credit == 0 {
		b.retryInterval = min(2*b.retryInterval, maxRetry)
	}
	b.credit = max(b.credit-1, 0)
}
