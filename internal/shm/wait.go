package shm

import (
	"runtime"
	"time"

	"github.com/elrun/elrun/internal/kernel"
)

// The phases of a wait: busy-polling, yielding the core, sleeping. Within a call ranks wait
// microseconds for each other, and waking up takes tens of microseconds, so sleeping comes last.
// Waits for a rank that computes or has died are long.
const (
	// spinPolls is the number of polls before the first yield.
	spinPolls = 200
	// yieldFor is how long a rank yields before it sleeps.
	yieldFor = time.Millisecond
	// yieldRounds is the largest number of yields to other processes between two yields to other
	// goroutines, which take longer. The number is smaller if the yields to processes take more
	// than yieldLimit together.
	yieldRounds = 16
	yieldLimit  = 100 * time.Microsecond
	// pollInterval is the time between two polls in a segment without events.
	pollInterval = 100 * time.Microsecond
)

// publish advances a counter of this rank and wakes the ranks that sleep for it. It uses Swap and
// not Store, because the load of sleepers must not be reordered before the write, and under the
// race detector a Store does not prevent that.
func (l *Lane) publish(c *counter, value uint32) {
	c.value.Swap(value)
	if c.sleepers.Load() != 0 {
		l.segment.wake(c.sleepers.Swap(0))
	}
}

// await waits until a counter of a rank has reached target.
func (l *Lane) await(c *counter, target uint32, rank int) error {
	if c.reached(target) {
		return nil
	}
	return l.awaitLong(c, target, rank)
}

// awaitLong is await for a counter that has not reached target yet: it polls, then yields, then
// sleeps. It is a function of its own so that await can be inlined.
func (l *Lane) awaitLong(c *counter, target uint32, rank int) error {
	if l.policies.busyPoll {
		for range spinPolls {
			if c.reached(target) {
				return nil
			}
			pause()
		}
	}
	begun := time.Now()
	l.updateCPU(begun)
	for turn := begun; turn.Sub(begun) < yieldFor; turn = time.Now() {
		for i := 0; i < yieldRounds && (i == 0 || time.Since(turn) < yieldLimit); i++ {
			if c.reached(target) {
				return nil
			}
			kernel.Yield()
		}
		if err := l.waitError(c, target, rank); err != nil {
			return err
		}
		runtime.Gosched()
	}
	l.watch(rank)
	defer l.watch(-1)
	return l.sleep(c, target, rank)
}

// waitError returns an error if the counter will never reach target: the segment is revoked, or the
// rank is gone and its counter has not reached target.
func (l *Lane) waitError(c *counter, target uint32, rank int) error {
	if l.segment.revoked.Load() {
		return ErrRevoked
	}
	if l.segment.gone[l.ranks[rank]].Load() && !c.reached(target) { // read after gone: the last calls of the rank count
		return &GoneError{rank}
	}
	return nil
}

// sleep waits with the event until the counter has reached target. It sets this rank's bit in
// sleepers before it reads the counter, and publish reads the bits after it has advanced the
// counter. So no wake-up is lost.
func (l *Lane) sleep(c *counter, target uint32, rank int) error {
	s := l.segment
	mine := uint64(1) << s.rank
	defer c.sleepers.And(^mine)
	for {
		seen := s.eventCount()
		if s.event != nil {
			c.sleepers.Or(mine)
		}
		if c.reached(target) {
			return nil
		}
		if err := l.waitError(c, target, rank); err != nil {
			return err
		}
		s.sleep(seen)
	}
}
