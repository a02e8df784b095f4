// Package transport is what package collective wants of a network: the Transport, which
// carries messages between the ranks of one session, and what it may do beside that. It is for
// those who write a transport; who calls collective never needs more of it than the names of
// calls.
//
// A transport moves bytes from a Send to the Recv with the same Envelope and compares their
// Calls. It ends as a whole: by Revoke, with a cause that EncodeCause carries to the other
// ranks, or by Close. Sharer and Meter are interfaces that a transport may implement as well.
// What all transports keep, nine rules, stands at Transport; testing/transporttest checks it of
// any implementation, and transport/mem is the shortest one.
package transport

import "context"

// Envelope is what travels with every message: to which call of which
// communicator it belongs, and what its sender believes that call to be.
type Envelope struct {
	// Comm identifies the communicator; 0 is the one a session starts with.
	Comm uint64
	// Seq counts the collective calls of the communicator; Send and Recv use
	// the upper half for their tags.
	Seq uint32
	// Call is compared at the receiver and never used for matching.
	Call Call
	// Priority does not travel: of the Sends to a rank that wait for each other those of a
	// higher one may go first. Signals count as of 0.
	Priority int32
}

// Signal is a short advisory message outside all calls.
type Signal struct {
	From int
	Data []byte
}

// Transport carries messages between the ranks 0..n-1 of one epoch. The
// communicator above knows its own rank and n.
//
// Its contract, which testing/transporttest checks of every implementation:
//
//  1. A call returns when its buffer may be reused. Recv is Post and Wait. Send may return before the
//     message is received, and may block until the receiver asks for it. A
//     message matches a receive by (from, Comm, Seq). A receive fills exactly what
//     it asked for; another length or another Call is a *MismatchError at the
//     receiver and revokes.
//  2. Messages of one (pair, Comm, Seq) arrive in the order of the Sends; others
//     are independent: a receive never waits for a message that nobody asked for
//     to be taken first. A zero-length message is a message. A rank may send to
//     itself.
//  3. All methods are safe for concurrent use, but for two Sends, or two Recvs, of
//     one (pair, Comm, Seq) at a time, whose order would be undefined.
//  4. No call outlives its ctx, its peer, or a revocation at either end: it returns
//     nil or an error, never hangs. A call ended by its ctx revokes, as half a
//     message may be on its way.
//  5. Revoke makes every pending and later Send and Recv fail with cause, at every
//     rank that can be reached, in bounded time. The first cause at a rank stays. It
//     is idempotent, never blocks, and carries the cause to the others by
//     EncodeCause. The death of a peer revokes with a *PeerError that names it.
//  6. A transport serves one epoch; frames of another epoch never match.
//  7. After an error the receive buffer is undefined, the send buffer intact.
//  8. Signal never blocks and may lose its message; Signals is never closed.
//     A signal never overtakes an earlier message of the same pair.
//  9. Close ends the transport after what was sent has been handed over, waits for
//     its goroutines, and revokes locally with ErrClosed. A peer that waits for a
//     message which a closed rank never sent gets a *PeerError; the close of a rank
//     from which nothing more is wanted disturbs nobody.
type Transport interface {
	Send(ctx context.Context, to int, e Envelope, buf []byte) error
	Recv(ctx context.Context, from int, e Envelope, buf []byte) error
	// Post begins a Recv and returns at once: buf is the transport's until Wait returns.
	// A Send that follows may wait for a receiver that is doing the same.
	Post(from int, e Envelope, buf []byte) Posted
	// Signal queues msg, at most MaxSignal bytes, for rank to; msg may be reused.
	Signal(to int, msg []byte)
	Signals() <-chan Signal
	Revoke(cause error)
	Close() error
}

// Posted is a receive under way.
type Posted interface {
	// Wait waits for its end, as Recv does. It is called once, also when the message is of
	// no use any more.
	Wait(ctx context.Context) error
}

// MaxSignal is the longest message of Transport.Signal, in bytes.
const MaxSignal = 512
