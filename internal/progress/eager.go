package progress

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
	// tryAgain is how often a reader without luck waits before it tries once more.
	tryAgain = 16
)

// eagerness knows whether it pays to look for what comes next again and again, before waiting
// for it. Where other processes want the core, or what comes takes longer, it does not.
type eagerness struct {
	luck  int // 0 to mostLuck
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
func (e *eagerness) came() { e.luck = min(e.luck+comeLuck, mostLuck) }

// missed takes note that nothing came.
func (e *eagerness) missed() { e.luck = max(e.luck-1, 0) }

// crowded takes note that other processes wanted the core.
func (e *eagerness) crowded() { e.luck = 0 }
