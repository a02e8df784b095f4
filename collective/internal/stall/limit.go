package stall

import (
	"math"
	"time"
)

const (
	// After is the least time after which a call is reported.
	After = time.Second
	// AskAfter is how long a call may wait for a message before it is asked for.
	AskAfter = 200 * time.Millisecond
	// limitFactor times the longest wait or step of late is the limit if that is longer.
	limitFactor = 3
	// limitGrowth is by what a single one can raise the limit at most: what is slow again
	// and again is taken for usual by and by, and an evaluation of minutes is not.
	limitGrowth = 1.5
	// paceFactor times the usual pause of this rank between its calls is the limit if that
	// is longer still: where it takes a second itself, another that needs five is slow
	// and no stall.
	paceFactor = 5
	// limitMost bounds the limit for a wait without a message.
	limitMost = 30 * time.Second
	// What was learned counts half after halving, or halvingFactor times what it took,
	// as that comes more rarely, but after halvingMost in any case.
	halving       = 20 * time.Second
	halvingFactor = 10
	halvingMost   = 10 * time.Minute
	// learnAfter is when something learned begins to count, so that the beginning of a stall
	// does not excuse the rest of it: longer than it takes to report one.
	learnAfter = 3 * time.Second
)

// Worth is the shortest time that has a bearing on a limit.
const Worth = After / limitFactor

// Limit is how long a call may be held up, which a rank learns from how long it has waited
// of late. Times come from the caller, as those since one origin. The zero value is ready.
type Limit struct {
	longest, next lesson // of waits and steps; next does not count yet
	pace          pace

	running int           // calls in progress
	since   time.Duration // when there last began to be any, or ceased to
	spent   time.Duration // in all in which there were any, before since

	step  int64
	begun time.Duration // spent when the step began
	whole bool          // the step was seen from its beginning
}

// Delay says how a call is held up.
type Delay struct {
	Held    time.Duration // for how long
	Likely  bool          // it is about to be a stall
	Overdue bool          // it is one
}

// Judge says how a call is held up that has waited so long for a message. Many messages or
// calls that are each a little late are a stall, too: if one step has been seen before, all
// of the present one counts that was spent in calls.
func (l *Limit) Judge(waits, now time.Duration) Delay {
	step := time.Duration(0)
	if l.whole {
		step = l.inCalls(now) - l.begun
	}
	limit := l.at(now)
	return Delay{
		Held:    max(waits, step),
		Likely:  waits >= AskAfter || step >= limit/2,
		Overdue: waits >= min(limit, limitMost) || step >= limit,
	}
}

// at returns the limit.
func (l *Limit) at(now time.Duration) time.Duration {
	if l.next.d > 0 && now-l.next.at >= learnAfter {
		l.next.at += learnAfter
		if l.next.d >= l.longest.left(l.next.at) {
			l.longest = l.next
		}
		l.next = lesson{}
	}
	return max(After, limitFactor*l.longest.left(now), paceFactor*l.pace.usual())
}

// Waited learns from a wait for a message that has come, or from the calls of a step.
func (l *Limit) Waited(d, now time.Duration) {
	if d < Worth {
		return
	}
	most := time.Duration(limitGrowth / limitFactor * float64(l.at(now)))
	half := min(max(halving, halvingFactor*d), halvingMost)
	if d = min(d, most); d > l.next.d { // one that is shorter adds nothing
		l.next = lesson{d, now, half}
	}
}

// inCalls returns how much time has been spent in calls.
func (l *Limit) inCalls(now time.Duration) time.Duration {
	if l.running > 0 {
		return l.spent + now - l.since
	}
	return l.spent
}

// Begin notes that a call begins.
func (l *Limit) Begin(now time.Duration) {
	l.Called(now)
	l.running++
}

// Called notes that there was a call of which nothing else is known.
func (l *Limit) Called(now time.Duration) {
	if l.running == 0 {
		l.pace.learn(now - l.since)
		l.since = now
	}
}

// End notes that a call ends.
func (l *Limit) End(now time.Duration) {
	if l.running--; l.running == 0 {
		l.spent += now - l.since
		l.since = now
	}
}

// Step notes in which step the program is, 0 for none yet.
func (l *Limit) Step(step int64, now time.Duration) {
	if step == l.step {
		return
	}
	spent := l.inCalls(now)
	if l.whole {
		l.Waited(spent-l.begun, now)
	}
	l.whole = l.step != 0
	l.step, l.begun = step, spent
}

// Excuse forgets how long the present step has been taking.
func (l *Limit) Excuse(now time.Duration) { l.begun = l.inCalls(now) }

// lesson is how long something took, when that was, and in which time it counts half.
type lesson struct{ d, at, half time.Duration }

// left returns how much of it counts still.
func (l lesson) left(now time.Duration) time.Duration {
	if l.d == 0 {
		return 0
	}
	return time.Duration(float64(l.d) * fade(now-l.at, l.half))
}

// pace is how long this rank usually pauses between calls: a mean in which each pause
// counts as much as it is long, so that of a step's one long pause and many short ones
// the long one is found. Time passes in it only while there is a pause.
type pace struct {
	sum, squares float64 // of the pauses in seconds, faded
}

// learn takes in a pause. A single one counts as little more than a few usual ones.
func (p *pace) learn(d time.Duration) {
	d = min(d, paceFactor*p.usual()+After)
	f, s := fade(d, halving), d.Seconds()
	p.sum, p.squares = f*p.sum+s, f*p.squares+s*s
}

func (p *pace) usual() time.Duration {
	if p.sum <= 0 {
		return 0
	}
	return time.Duration(p.squares / p.sum * float64(time.Second))
}

// fade is what is left of 1 after a time.
func fade(d, half time.Duration) float64 {
	x := float64(d) / float64(half)
	if x < 1e-5 { // as between short calls: cheaper, and right to ten digits
		return 1 - math.Ln2*x
	}
	return math.Exp2(-x)
}
