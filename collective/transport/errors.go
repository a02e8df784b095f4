package transport

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels, for errors.Is. Package collective exports them under the same names.
var (
	// ErrRevoked: the transport can no longer be used. Every cause of a revocation is also
	// ErrRevoked.
	ErrRevoked = errors.New("communicator revoked")
	// ErrMismatch: ranks made different calls; errors.As gives *MismatchError.
	ErrMismatch = errors.New("mismatched calls")
	// ErrPeer: a rank died or cannot be reached; errors.As gives *PeerError.
	ErrPeer = errors.New("peer lost")
	// ErrClosed: the transport was closed at this rank.
	ErrClosed = errors.New("communicator closed")
	// ErrMistake: the program of a rank has a bug, so the error would recur on any other
	// transport. Every ErrMismatch is also ErrMistake, and so is an *AbortError with
	// Mistake.
	ErrMistake = errors.New("mistake of the program")
)

// MismatchError reports that two ranks made different calls at the same place in the sequence:
// RankA made A, RankB made B. Ranks in errors are ranks of the transport, also for communicators
// made by Split.
type MismatchError struct {
	RankA, RankB int
	A, B         Call
	// Detail, if not empty, describes a difference that the two calls do not show.
	Detail string
}

// Error names both ranks and their calls.
func (m *MismatchError) Error() string {
	s := fmt.Sprintf("mismatched calls: rank %d called %v, rank %d called %v", m.RankA, m.A, m.RankB, m.B)
	if m.Detail != "" {
		s += " (" + m.Detail + ")"
	}
	return s
}

// Is reports ErrMismatch, ErrMistake and ErrRevoked.
func (m *MismatchError) Is(target error) bool {
	return target == ErrMismatch || target == ErrMistake || target == ErrRevoked
}

// DeadlockError reports blocking calls that wait for each other: the call of each rank waits for the
// next rank, and the call of the last rank for the first. It names at most eight ranks.
type DeadlockError struct{ Waits []DeadlockWait }

// DeadlockWait is the call of one rank in a deadlock.
type DeadlockWait struct {
	Rank  int
	Call  Call
	Comm  uint64 // ID of the communicator of the call
	Sends bool   // the call is a Send; otherwise a call of KindPoint is a Recv
}

// Error names the ranks and their calls.
func (d *DeadlockError) Error() string {
	s, separate := "deadlock, each waits for the next: ", false
	for i, w := range d.Waits {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("rank %d in %s", w.Rank, w.name())
		separate = separate || w.Comm != d.Waits[0].Comm
	}
	if separate {
		s += " (on several communicators)"
	}
	return s
}

// name returns the name of the call, with its direction.
func (d DeadlockWait) name() string {
	name := d.Call.String()
	if d.Call.Kind != KindPoint {
		return name
	}
	direction := "recv"
	if d.Sends {
		direction = "send"
	}
	return direction + strings.TrimPrefix(name, KindPoint.String())
}

// Is reports ErrMistake and ErrRevoked.
func (d *DeadlockError) Is(target error) bool { return target == ErrMistake || target == ErrRevoked }

// PeerError reports the loss of a rank, and the way in which it was detected.
type PeerError struct {
	Rank  int
	Peer  string // ID of the peer, or empty
	Cause string // for people: reset, closed, silent, ...
	// Ended is set if it is certain that the process of the rank has ended, because the kernel has
	// told this process. Other ranks do not get it with the cause: they have only this rank's word.
	Ended bool
}

// Error names the rank, the ID of the peer and the cause.
func (p *PeerError) Error() string {
	if p.Peer == "" {
		return fmt.Sprintf("peer lost: rank %d: %s", p.Rank, p.Cause)
	}
	return fmt.Sprintf("peer lost: rank %d (%s): %s", p.Rank, p.Peer, p.Cause)
}

// Is reports ErrPeer and ErrRevoked.
func (p *PeerError) Is(target error) bool { return target == ErrPeer || target == ErrRevoked }

// AbortError reports that a rank revoked for a local reason: a cancelled context, a bad argument,
// or a Revoke by the user.
type AbortError struct {
	// Rank is the rank that has revoked the communicator.
	Rank  int
	Cause string // the reason, for people
	// Mistake is set if the reason is a bug of the program, which would recur on any other
	// transport.
	Mistake bool
}

// Error names the rank and its reason.
func (a *AbortError) Error() string { return fmt.Sprintf("revoked by rank %d: %s", a.Rank, a.Cause) }

// Is reports ErrRevoked, and ErrMistake if Mistake is set.
func (a *AbortError) Is(target error) bool {
	return target == ErrRevoked || a.Mistake && target == ErrMistake
}
