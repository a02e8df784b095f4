package progress

import "time"

const (
	// lookTime is for how long an eager reader looks again and again. A virtual machine takes as
	// long to wake.
	lookTime = 50 * time.Microsecond
	// mostLuck is how much luck is remembered, missLuck what a miss costs: to look pays if three of
	// four times something comes in time.
	mostLuck = 8
	missLuck = 3
	// tryAgain is how often a reader without luck waits before it tries once more.
	tryAgain = 64
)

// eagerness knows whether it pays to look for what comes next again and again, before waiting
// for it. Where other processes want the core, or what comes takes longer, it does not.
type eagerness struct {
	luck  int
	waits int // since it had none
}

// worth reports whether to look.
func (e *eagerness) worth() bool {
	if e.luck > 0 {
		return true
	}
	e.waits = (e.waits + 1) % tryAgain
	return e.waits == 0
}

// came takes note that something came while somebody looked.
func (e *eagerness) came() { e.luck = min(e.luck+1, mostLuck) }

// missed takes note that nothing came.
func (e *eagerness) missed() { e.luck = max(e.luck-missLuck, 0) }
