package elastic

import "io"

// State is what all members of a group hold alike, and what is copied to those who
// join or have fallen behind. Its methods are called from the goroutine that calls
// Next and Committed, never at the same time.
type State interface {
	// Step returns the last committed step; 0 before the first.
	Step() int64
	// Save writes the whole state after Step(): the same bytes at every member that has
	// committed the same steps.
	Save(w io.Writer) error
	// Load replaces the state by one that another member saved. After an error the
	// state is undefined until a later Load has succeeded.
	Load(r io.Reader) error
}

// Replayer is a State that can also be brought forward one step at a time, with
// fewer bytes than a whole one.
type Replayer interface {
	State
	// Update writes what leads from the state after Step()-1 to that after Step(): the
	// reduced gradient, for example. It is called only after a step was committed here.
	Update(w io.Writer) error
	// Apply commits the step after Step() as another member's Update describes it. After
	// an error the state is as it was.
	Apply(r io.Reader) error
}
