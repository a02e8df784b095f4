package collective

import (
	"errors"

	"github.com/elrun/elrun/collective/transport"
)

// Sentinels, for errors.Is. Every error of a call that communicated with other ranks is also
// ErrRevoked: the communicator of the call and all others over the same transport have ended, and
// the content of the call's destination is undefined.
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
	// ErrMistake: the program of a rank has a bug, so the error would recur on any other
	// communicator: mismatched calls, a deadlock, a bad argument, concurrent calls, a panic in a
	// call, or an *AbortError with Mistake. Every ErrMismatch is also ErrMistake.
	ErrMistake = transport.ErrMistake
	// ErrConcurrent: a call was made while its communicator was in a blocking call, which
	// only a second goroutine can do. The ranks might begin the two calls in different
	// orders.
	ErrConcurrent = errors.New("concurrent calls on one communicator")
)

// The errors that name ranks, for errors.As. Ranks in them are ranks of the transport, also
// for communicators made by Split.
type (
	// MismatchError reports that two ranks made different calls at the same place in the sequence:
	// RankA made A, RankB made B.
	MismatchError = transport.MismatchError
	// DeadlockError reports blocking calls that wait for each other, with their ranks.
	DeadlockError = transport.DeadlockError
	// DeadlockWait is the call of one rank in a DeadlockError.
	DeadlockWait = transport.DeadlockWait
	// PeerError reports the loss of a rank, with its number and the way in which the loss was
	// detected.
	PeerError = transport.PeerError
	// AbortError reports that a rank revoked for a local reason: a cancelled context, a bad
	// argument, or a Revoke by the user.
	AbortError = transport.AbortError
)

// callError wraps the error of a call. It makes every such error ErrRevoked, whatever its
// cause, and ErrMistake if the cause is a bug of the program.
type callError struct{ error }

// Unwrap returns the cause.
func (c *callError) Unwrap() error { return c.error }

// Is makes errors.Is report ErrRevoked for every callError, and ErrMistake if the cause is a bug of
// the program.
func (c *callError) Is(target error) bool {
	return target == ErrRevoked || target == ErrMistake && isMistake(c.error)
}

// isMistake reports whether an error is a bug in the program of a rank. Such an error would recur
// with other members, so package elastic does not retry.
func isMistake(err error) bool {
	for _, kind := range []error{ErrMistake, ErrArgument, ErrConcurrent, errPanicked} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
