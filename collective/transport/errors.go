package transport

import (
	"errors"
	"fmt"
)

// Sentinels, for errors.Is. Package collective gives them to users under the same names.
var (
	// ErrRevoked: the transport can no longer be used. Every cause of a revocation is one.
	ErrRevoked = errors.New("communicator revoked")
	// ErrMismatch: ranks made different calls; errors.As gives *MismatchError.
	ErrMismatch = errors.New("mismatched calls")
	// ErrPeer: a rank died or cannot be reached; errors.As gives *PeerError.
	ErrPeer = errors.New("peer lost")
	// ErrClosed: the transport was closed at this rank.
	ErrClosed = errors.New("communicator closed")
	// ErrMistake: the program of a rank has made a mistake, which comes again on any other
	// transport. Every ErrMismatch is one, and so is an *AbortError with Mistake.
	ErrMistake = errors.New("mistake of the program")
)

// MismatchError says that two ranks made different calls where one was due. A
// rank in an error is the rank in the transport, also on communicators made by Split.
type MismatchError struct {
	RankA, RankB int
	A, B         Call
	// Detail, if set, says what differs where the calls look alike.
	Detail string
}

// Error names both ranks and their calls.
func (e *MismatchError) Error() string {
	s := fmt.Sprintf("mismatched calls: rank %d called %v, rank %d called %v", e.RankA, e.A, e.RankB, e.B)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Is reports ErrMismatch, ErrMistake and ErrRevoked.
func (e *MismatchError) Is(target error) bool {
	return target == ErrMismatch || target == ErrMistake || target == ErrRevoked
}

// PeerError says which rank was lost and how that was seen.
type PeerError struct {
	Rank  int
	Peer  string // the peer's ID, or empty
	Cause string // reset, closed, silent, ...: for people
}

// Error names the rank, its peer and the cause.
func (e *PeerError) Error() string {
	if e.Peer == "" {
		return fmt.Sprintf("peer lost: rank %d: %s", e.Rank, e.Cause)
	}
	return fmt.Sprintf("peer lost: rank %d (%s): %s", e.Rank, e.Peer, e.Cause)
}

// Is reports ErrPeer and ErrRevoked.
func (e *PeerError) Is(target error) bool { return target == ErrPeer || target == ErrRevoked }

// AbortError says that a rank gave up for a reason of its own: a cancelled context,
// a bad argument, a Revoke of the user's.
type AbortError struct {
	Rank  int
	Cause string
	// Mistake: the reason is one of the program's own, so that it would come again.
	Mistake bool
}

// Error names the rank and its reason.
func (e *AbortError) Error() string { return fmt.Sprintf("revoked by rank %d: %s", e.Rank, e.Cause) }

// Is reports ErrRevoked, and ErrMistake if it is one.
func (e *AbortError) Is(target error) bool {
	return target == ErrRevoked || e.Mistake && target == ErrMistake
}
