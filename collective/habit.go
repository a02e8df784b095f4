package collective

import (
	"math"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

const (
	// stallAfter is the least time after which a call is reported.
	stallAfter = time.Second
	// stallFactor times the longest that waits, such calls and steps have taken of late is
	// the limit if that is longer.
	stallFactor = 3
	// stallGrowth is by what a single one can raise the limit at most: what is slow again
	// and again is taken for usual by and by, and an evaluation of minutes is not.
	stallGrowth = 1.5
	// paceFactor times the usual pause of this rank between its calls is the limit if that
	// is longer still: where it takes a second itself, another that needs five is slow
	// and no stall.
	paceFactor = 5
	// stallMost bounds the limit for a wait without a message.
	stallMost = 30 * time.Second
	// What was learned counts half after habitHalving, or halvingFactor times what it took,
	// as that comes more rarely, but after habitMost in any case.
	habitHalving  = 20 * time.Second
	halvingFactor = 10
	habitMost     = 10 * time.Minute
	// mostKinds bounds the kinds of calls that are remembered.
	mostKinds = 1000
)

// habits is what a rank has learned of how long things take. It is pure: times are
// since world.started and come from the caller.
type habits struct {
	wait  longest                     // for a message, in any call
	kinds map[transport.Call]*longest // from begin to end, of collective calls that ended well
	steps longest                     // spent in calls between two changes of step
	pace  pace
	last  transport.Call // in kinds, or zero

	running int           // calls in progress
	since   time.Duration // when there last began to be any, or ceased to
	spent   time.Duration // in all in which there were any, before since

	step  int64
	begun time.Duration // spent when the step began
	whole bool          // the step was seen from its beginning
}

// limit returns how long a call may be held up.
func (h *habits) limit(c transport.Call, now time.Duration) time.Duration {
	usual := max(h.wait.decayed(now), h.steps.decayed(now))
	if l := h.kinds[c]; l != nil {
		usual = max(usual, l.decayed(now))
	}
	return max(stallAfter, stallFactor*usual, paceFactor*h.pace.usual())
}

// delay says how a call is held up.
type delay struct {
	held    time.Duration // for how long
	likely  bool          // it is about to be a stall
	overdue bool          // it is one
}

// judge says how a call is held up that has waited so long for a message, and begun so
// long ago. The wait counts, and all of the call if there have been others like it. Many
// messages or calls that are each a little late are a stall, too: if one step has been
// seen before, all of the present one counts that was spent in calls.
func (h *habits) judge(c transport.Call, waits, age, now time.Duration) delay {
	whole := time.Duration(0)
	if h.kinds[c] != nil {
		whole = age
	}
	if h.whole {
		whole = max(whole, h.inCalls(now)-h.begun)
	}
	limit := h.limit(c, now)
	return delay{
		held:    max(waits, whole),
		likely:  waits >= rollCallAfter || whole >= limit/2,
		overdue: waits >= min(limit, stallMost) || whole >= limit,
	}
}

// inCalls returns how much time has been spent in calls.
func (h *habits) inCalls(now time.Duration) time.Duration {
	if h.running > 0 {
		return h.spent + now - h.since
	}
	return h.spent
}

// begin notes that a call begins.
func (h *habits) begin(now time.Duration) {
	if h.running++; h.running == 1 {
		h.pace.learn(now - h.since)
		h.since = now
	}
}

// called notes that there was a call of which nothing else is known.
func (h *habits) called(now time.Duration) {
	if h.running == 0 {
		h.pace.learn(now - h.since)
		h.since = now
	}
}

// end notes that a call ends that took d, and learns from it if it is one of those of
// which there are more like it.
func (h *habits) end(c transport.Call, learn bool, d, now time.Duration) {
	if h.running--; h.running == 0 {
		h.spent += now - h.since
		h.since = now
	}
	if !learn || d < worthLearning && c == h.last { // which is there, and has nothing to learn
		return
	}
	h.last = c
	l := h.kinds[c]
	if l == nil {
		if len(h.kinds) >= mostKinds {
			clear(h.kinds) // which c, now the last, is added to
		}
		l = &longest{}
		h.kinds[c] = l
	}
	h.learn(l, c, d, now)
}

// waited learns from a wait for a message in c that has come.
func (h *habits) waited(c transport.Call, d, now time.Duration) { h.learn(&h.wait, c, d, now) }

// inStep notes in which step the program is.
func (h *habits) inStep(step int64, now time.Duration) {
	if step == h.step {
		return
	}
	spent := h.inCalls(now)
	if h.whole {
		h.learn(&h.steps, transport.Call{}, spent-h.begun, now)
	}
	h.whole = h.step != 0
	h.step, h.begun = step, spent
}

// excuse forgets how long the present step has been taking.
func (h *habits) excuse(now time.Duration) { h.begun = h.inCalls(now) }

// learn lets l learn d, if it has a bearing on any limit.
func (h *habits) learn(l *longest, c transport.Call, d, now time.Duration) {
	if d >= worthLearning {
		most := time.Duration(stallGrowth / stallFactor * float64(h.limit(c, now)))
		half := min(max(habitHalving, halvingFactor*d), habitMost)
		l.learn(lesson{min(d, most), now, half})
	}
}

// worthLearning is the shortest time that has a bearing on any limit.
const worthLearning = stallAfter / stallFactor

// longest is the longest of some times, which fades. What is learned counts only after
// learnAfter, so that the beginning of a stall does not excuse the rest of it.
type longest struct {
	lesson
	recent []lesson // that do not count yet, ever longer
}

// lesson is how long something took, when that was, and in which time it counts half.
type lesson struct{ d, at, half time.Duration }

// learnAfter is longer than it takes to report a stall.
const learnAfter = 3 * time.Second

// decayed returns what is left of the longest time.
func (l *longest) decayed(now time.Duration) time.Duration {
	for len(l.recent) > 0 && now-l.recent[0].at >= learnAfter {
		next := l.recent[0]
		if next.at += learnAfter; next.d >= l.left(next.at) {
			l.lesson = next
		}
		l.recent = l.recent[1:]
	}
	return l.left(now)
}

// left returns how much of it counts still.
func (l lesson) left(now time.Duration) time.Duration {
	if l.d == 0 {
		return 0
	}
	return time.Duration(float64(l.d) * fade(now-l.at, l.half))
}

// learn takes in a time. One that is hardly longer than one of just before adds nothing,
// which bounds the memory.
func (l *longest) learn(next lesson) {
	if n := len(l.recent); n == 0 || next.d > l.recent[n-1].d*5/4 {
		l.recent = append(l.recent, next)
	}
}

// pace is how long this rank usually pauses between calls: a mean in which each pause
// counts as much as it is long, so that of a step's one long pause and many short ones
// the long one is found. Time passes in it only while there is a pause.
type pace struct {
	sum, squares float64 // of the pauses in seconds, faded
}

// learn takes in a pause. A single one counts as little more than a few usual ones.
func (p *pace) learn(d time.Duration) {
	d = min(d, paceFactor*p.usual()+stallAfter)
	f, s := fade(d, habitHalving), d.Seconds()
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
