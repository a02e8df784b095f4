package elastic

import "io"

// State is the data that all members of a group hold in common: the model and all else that the
// next step depends on. Newcomers and members that lag behind receive a copy. The group calls the
// methods only in the goroutine that calls Sessions.Next and Committed.
type State interface {
	// Step returns the last committed step; 0 before the first.
	Step() int64
	// Save writes the whole state after Step(). Members that have committed the same steps must
	// write the same bytes.
	Save(w io.Writer) error
	// Load replaces the state by a copy that another member saved. After an error the state is
	// undefined until a later Load has succeeded.
	Load(r io.Reader) error
}

// Watched is a State that is told of the steps of a loop, for example to save it. Steps trains Inner
// in its place.
type Watched interface {
	State
	// Inner returns the State, the same in each call.
	Inner() State
	// Stable is called when all members of a session have committed the step Inner().Step(): at each
	// member, at its entry into the session and between two turns, in the goroutine of the loop. It
	// may read the State. last means that no step follows. An error ends the loop at all members.
	Stable(s *Session, last bool) error
}

// Replayer is a State that can also be advanced by single steps, with fewer bytes than a copy of
// the whole state.
type Replayer interface {
	State
	// Update writes the difference from the state after Step()-1 to the state after Step(), for
	// example the reduced gradient. It is called only if this peer has committed that step since
	// the last Load.
	Update(w io.Writer) error
	// Apply commits the step after Step() from another member's Update. After an error the state is
	// unchanged.
	Apply(r io.Reader) error
}
