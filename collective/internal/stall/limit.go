package stall

import (
	"math"
	"time"
)

const (
	// After is the lower bound of the limit: no call is reported earlier.
	After = time.Second
	// AskAfter is how long a call may wait for a message before the watchdog asks the awaited rank.
	AskAfter = 200 * time.Millisecond
	// limitFactor: the limit is at least this factor times the decaying maximum of waits and
	// steps.
	limitFactor = 3
	// limitGrowth is the factor by which a single wait can raise the limit. Waits that are long
	// again and again raise the limit step by step, until they are no longer reported. A single
	// wait of minutes, for example for an evaluation, raises the limit only once.
	limitGrowth = 1.5
	// idleFactor: the limit is also at least this factor times the usual pause of this rank
	// between its calls. If this rank computes for a second between calls, a rank that needs
	// five seconds is slow and not stalled.
	idleFactor = 5
	// maxLimit bounds the limit for a wait without a message.
	maxLimit = 30 * time.Second
	// Recorded durations decay with a half-life of halfLife. For long and therefore rare
	// durations the half-life is halfLifeFactor times the duration, at most maxHalfLife.
	halfLife       = 20 * time.Second
	halfLifeFactor = 10
	maxHalfLife    = 10 * time.Minute
	// sampleDelay is the delay after which a recorded duration affects the limit. It is longer than
	// the time to the report of a stall. Otherwise the first waits of a stall would raise the limit
	// for the remaining time of the stall.
	sampleDelay = 3 * time.Second
)

// MinRelevant is the shortest duration that can influence a limit.
const MinRelevant = After / limitFactor

// Limit is the adaptive timeout of a rank's calls: the time for which a call may be blocked before
// it is reported. It is computed from three quantities: the decaying maximum of waits and steps,
// the usual pause between calls, and the lower bound After. Times come from the caller, as
// durations since one origin. The zero value is ready. It is not safe for concurrent use.
type Limit struct {
	decayingMax, pending sample   // of waits and steps; pending counts only after sampleDelay
	idleTime             idleTime // of the pauses between calls

	running       int           // number of calls in progress
	since         time.Duration // when running last became positive or zero, or when the last untracked call was recorded
	inCallsBefore time.Duration // total time with calls in progress, up to since

	step      int64         // present step of the program; 0 before the first step
	stepBegin time.Duration // total time with calls in progress at the beginning of the step
	// sawBegin is set if this rank saw the beginning of the step, so that its whole duration is
	// known.
	sawBegin bool
}

// Delay is the result of Judge for a wait.
type Delay struct {
	// Held is the time for which the call has been blocked, or the time that its step has spent in
	// calls, whichever is longer.
	Held    time.Duration
	Likely  bool // a stall is likely: time to ask
	Overdue bool // the limit is exceeded
}

// Judge judges a call that has waited for a message for the duration waits. Many messages
// or calls that are each a little late are a stall, too. So if the present step was seen
// from its beginning, the total time that the step has spent in calls is compared with the
// limit as well.
func (l *Limit) Judge(waits, now time.Duration) Delay {
	step := time.Duration(0)
	if l.sawBegin {
		step = l.inCalls(now) - l.stepBegin
	}
	limit := l.limit(now)
	return Delay{
		Held:    max(waits, step),
		Likely:  waits >= AskAfter || step >= limit/2,
		Overdue: waits >= min(limit, maxLimit) || step >= limit,
	}
}

// limit returns the limit. If the pending duration is older than sampleDelay, it is first added to
// the decaying maximum.
func (l *Limit) limit(now time.Duration) time.Duration {
	if l.pending.duration > 0 && now-l.pending.at >= sampleDelay {
		l.pending.at += sampleDelay
		if l.pending.duration >= l.decayingMax.value(l.pending.at) {
			l.decayingMax = l.pending
		}
		l.pending = sample{}
	}
	return max(After, limitFactor*l.decayingMax.value(now), idleFactor*l.idleTime.mean())
}

// RecordWait records the duration of a wait that has ended, or the time that a step spent in
// calls.
func (l *Limit) RecordWait(d, now time.Duration) {
	if d < MinRelevant {
		return
	}
	maxDuration := time.Duration(limitGrowth / limitFactor * float64(l.limit(now)))
	half := min(max(halfLife, halfLifeFactor*d), maxHalfLife)
	if d = min(d, maxDuration); d > l.pending.duration { // a shorter duration has no effect
		l.pending = sample{d, now, half}
	}
}

// inCalls returns the total time with calls in progress.
func (l *Limit) inCalls(now time.Duration) time.Duration {
	if l.running > 0 {
		return l.inCallsBefore + now - l.since
	}
	return l.inCallsBefore
}

// Begin records that a call begins.
func (l *Limit) Begin(now time.Duration) {
	l.RecordUntracked(now)
	l.running++
}

// RecordUntracked records that there was an untracked call, whose duration is unknown, since the
// last event.
func (l *Limit) RecordUntracked(now time.Duration) {
	if l.running == 0 {
		l.idleTime.record(now - l.since)
		l.since = now
	}
}

// End records that a call ends.
func (l *Limit) End(now time.Duration) {
	if l.running--; l.running == 0 {
		l.inCallsBefore += now - l.since
		l.since = now
	}
}

// Step records the current step of the program, 0 for none yet. The end of a step records
// its time in calls.
func (l *Limit) Step(step int64, now time.Duration) {
	if step == l.step {
		return
	}
	spent := l.inCalls(now)
	if l.sawBegin {
		l.RecordWait(spent-l.stepBegin, now)
	}
	l.sawBegin = l.step != 0
	l.step, l.stepBegin = step, spent
}

// ResetStep restarts the clock of the present step, for example after this process was
// stopped.
func (l *Limit) ResetStep(now time.Duration) { l.stepBegin = l.inCalls(now) }

// sample is a duration that decays: its value is duration at the time at, and half of that
// when halfLife has passed.
type sample struct{ duration, at, halfLife time.Duration }

// value returns the decayed value at now.
func (s sample) value(now time.Duration) time.Duration {
	if s.duration == 0 {
		return 0
	}
	return time.Duration(float64(s.duration) * decay(now-s.at, s.halfLife))
}

// idleTime is the usual pause of this rank between calls: a decaying mean in which each pause
// is weighted with its own length. So the one long pause of a step counts more than its
// many short ones. The mean decays only during pauses.
type idleTime struct {
	sum, squares float64 // decayed sums of the pauses and of their squares, in seconds
}

// record records a pause. The pause is clipped, so that a single long pause changes the mean only
// as much as a few usual pauses.
func (i *idleTime) record(d time.Duration) {
	d = min(d, idleFactor*i.mean()+After)
	f, s := decay(d, halfLife), d.Seconds()
	i.sum, i.squares = f*i.sum+s, f*i.squares+s*s
}

// mean returns the weighted mean, 0 before the first pause.
func (i *idleTime) mean() time.Duration {
	if i.sum <= 0 {
		return 0
	}
	return time.Duration(i.squares / i.sum * float64(time.Second))
}

// decay returns the fraction that is left of a value after a time, for a half-life.
func decay(d, half time.Duration) float64 {
	x := float64(d) / float64(half)
	// A linear approximation is cheaper for the gaps between short calls, and right to ten
	// digits.
	if x < 1e-5 {
		return 1 - math.Ln2*x
	}
	return math.Exp2(-x)
}
