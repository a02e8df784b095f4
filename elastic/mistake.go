package elastic

import (
	"fmt"

	"github.com/elrun/elrun/collective"
)

// A mistake of the program would recur in every session, so it ends the loops of all members. A
// revocation of the session alone cannot do that: a member whose session has failed for another
// reason keeps that reason, and a slow member may learn of the end of a process before it reads the
// revocation. Such a member would go on in the next view, perhaps alone, to a wrong result. So a
// member that knows of a mistake also reports it in its heartbeats, and its process does not end
// before the members that watch it know of the mistake, too. The others pass it on in their
// heartbeats, so it reaches all members of a large group.

// mistakeError describes a mistake of the program. It wraps another error, for its text.
type mistakeError struct{ error }

// mistakef returns a mistakeError with a formatted text.
func mistakef(format string, args ...any) error { return mistakeError{fmt.Errorf(format, args...)} }

// Is reports collective.ErrMistake.
func (m mistakeError) Is(target error) bool { return target == collective.ErrMistake }

// Unwrap returns the error with the text.
func (m mistakeError) Unwrap() error { return m.error }

// maxMistake bounds the text of a mistake in a heartbeat, in bytes. The text of a revocation has
// the same limit.
const maxMistake = 200
