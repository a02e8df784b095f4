package collective

import (
	"errors"

	"github.com/elrun/elrun/collective/transport"
)

// Sentinels, for errors.Is. Every error of a call that talked to other ranks is
// also ErrRevoked: its communicator, and all that share its transport, are at an
// end, and the contents of its destination are undefined.
var (
	// ErrRevoked: the communicator can no longer be used.
	ErrRevoked = transport.ErrRevoked
	// ErrMismatch: ranks made different calls; errors.As gives *MismatchError.
	ErrMismatch = transport.ErrMismatch
	// ErrPeer: a rank died or cannot be reached; errors.As gives *PeerError.
	ErrPeer = transport.ErrPeer
	// ErrClosed: the communicator was closed at this rank.
	ErrClosed = transport.ErrClosed
	// ErrArgument: a slice, root, count or reduction does not fit the call, or is nil.
	ErrArgument = errors.New("bad argument")
	// ErrMistake: the program of a rank has made a mistake, which comes again on any other
	// communicator: mismatched calls, a bad argument, concurrent calls, a panic in a call, or
	// an *AbortError with Mistake. Every ErrMismatch is one.
	ErrMistake = transport.ErrMistake
	// ErrConcurrent: a call was made while its communicator was in a blocking one, which
	// only another goroutine can do. The ranks may differ in which of the two came first.
	ErrConcurrent = errors.New("concurrent calls on one communicator")
)

// The errors that name ranks, for errors.As. A rank in them is the rank in the
// transport, also on communicators made by Split.
type (
	// MismatchError says that two ranks made different calls where one was due: RankA made
	// A, RankB made B.
	MismatchError = transport.MismatchError
	// PeerError says which rank was lost and how that was seen.
	PeerError = transport.PeerError
	// AbortError says that a rank gave up for a reason of its own: a cancelled context, a
	// bad argument, a Revoke of the user's.
	AbortError = transport.AbortError
)

// callError marks every error of a call as ErrRevoked, whatever its cause, and as ErrMistake
// where it is one.
type callError struct{ error }

func (e *callError) Unwrap() error { return e.error }

func (e *callError) Is(target error) bool {
	return target == ErrRevoked || target == ErrMistake && isMistake(e.error)
}

// isMistake reports whether an error is a mistake of the program of some rank.
func isMistake(err error) bool {
	for _, kind := range []error{ErrMistake, ErrArgument, ErrConcurrent, errPanicked} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// causeOf returns the cause by which an error of this rank revokes.
func causeOf(self int, err error) error {
	if isMistake(err) {
		err = &callError{err}
	}
	return transport.CauseOf(self, err)
}
