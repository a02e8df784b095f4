// Package laps divides the time of a peer among the parts of its steps, like a stopwatch with laps: each
// lap begins where the lap before ended, so the parts of a step have no gaps and do not overlap. The package
// is pure: all times come from the caller.
package laps

import "time"

// Part is a part of the time of a step.
type Part int

// Parts of the time of a step, see event.Times.
const (
	Lost Part = iota
	Point
	Data
	Compute
	Wait
	Reduce
	Apply
	Commit
	parts
)

// Times has the time of each part of a step.
type Times [parts]time.Duration

// Total returns the time of the step.
func (t Times) Total() (sum time.Duration) {
	for _, d := range t {
		sum += d
	}
	return sum
}

// Clock divides the time of a peer in one session after another. It runs from Enter to Leave, and ignores
// laps at other times, such as those of a trial. The zero value is ready.
//
//	Enter -> Begin -> laps -> Computed -> laps -> Recorded -> Close -> Begin -> ... -> Leave
//
// A clock is not safe for concurrent use.
type Clock struct {
	step    int64 // the open step
	running bool
	begun   bool      // a try at the open step has begun
	at      time.Time // end of the last lap
	open    Times     // of the open step
	ahead   time.Duration
	// recorded is the time from which the ranks compute the open step: the last commit record was complete,
	// or the session began. All ranks reach it at nearly the same time.
	recorded time.Time
	busy     time.Duration // from recorded to the end of this rank's computing
	// unwaited is the part of Reduce before the end of the computing.
	unwaited time.Duration
}

// Enter begins a session in which the given step is open. The clock keeps what earlier sessions have
// computed and lost for that step.
func (c *Clock) Enter(step int64, now time.Time) {
	kept := Times{Lost: c.open[Lost], Compute: c.open[Compute]}
	if c.step != step {
		kept = Times{}
	}
	*c = Clock{step: step, running: true, at: now, recorded: now, open: kept}
}

// Leave ends a session. A try at the open step that has begun is lost, without its computing. The time
// since the last step is dropped if no try has begun.
func (c *Clock) Leave(now time.Time) {
	if c.begun {
		c.Fail(now)
	}
	c.running = false
}

// Lap ends a lap that belongs to a part of the open step, and returns now. A lap that would end before it
// began is empty.
func (c *Clock) Lap(now time.Time, p Part) time.Time {
	c.open[p] += c.lap(now)
	return now
}

// Ahead ends a lap of computing for the step after the open step, and returns now.
func (c *Clock) Ahead(now time.Time) time.Time {
	c.ahead += c.lap(now)
	return now
}

// lap begins a lap at now, and returns the time of the lap before it.
func (c *Clock) lap(now time.Time) time.Duration {
	if !c.running || !now.After(c.at) {
		return 0
	}
	took := now.Sub(c.at)
	c.at = now
	return took
}

// Begin ends the time before a try at the open step.
func (c *Clock) Begin(now time.Time) {
	c.begun = true
	c.Lap(now, Point)
}

// Call ends a call of the model that began with the last lap and has waited for samples. The rest of the
// call is computing.
func (c *Clock) Call(now time.Time, waited time.Duration) {
	if samples := c.at.Add(waited); samples.Before(now) {
		c.Lap(samples, Data)
		c.Lap(now, Compute)
		return
	}
	c.Lap(now, Data)
}

// Computed records that this rank has computed its share, and returns now.
func (c *Clock) Computed(now time.Time) time.Time {
	c.Lap(now, Reduce)
	c.unwaited = c.open[Reduce]
	c.busy = max(0, now.Sub(c.recorded))
	return now
}

// Busy returns the time in which this rank has computed its share, since the commit record before.
func (c *Clock) Busy() time.Duration { return c.busy }

// Recorded records when a commit record was complete: sums were reduced at the first time, and the record at
// the second.
func (c *Clock) Recorded(summed, complete, now time.Time) {
	c.Lap(summed, Reduce)
	c.Lap(now, Commit)
	c.recorded = complete
}

// Fail makes all of the open step but its computing a lost attempt.
func (c *Clock) Fail(now time.Time) {
	c.Lap(now, Lost)
	computed := c.open[Compute]
	c.open = Times{Lost: c.open.Total() - computed + c.ahead, Compute: computed}
	c.ahead, c.unwaited = 0, 0
}

// Close ends the open step, opens the next one, and returns the times of the step. kept is the computing
// whose result is in the step; other computing was lost. late is the time by which the last rank computed
// longer than this rank: so much of the time in which this rank waited is Wait.
func (c *Clock) Close(now time.Time, kept, late time.Duration) Times {
	c.Lap(now, Apply)
	t := c.open
	t[Lost], t[Compute] = t[Lost]+t[Compute]-kept, kept
	t[Wait] = min(max(0, late), t[Reduce]-c.unwaited+t[Commit])
	fromSums := min(t[Wait], t[Reduce]-c.unwaited)
	t[Reduce] -= fromSums
	t[Commit] -= t[Wait] - fromSums
	c.step, c.begun, c.open, c.ahead, c.unwaited = c.step+1, false, Times{Compute: c.ahead}, 0, 0
	return t
}
