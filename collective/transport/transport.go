// Package transport defines what package collective needs of a network: the interface
// Transport, which carries messages between the ranks of one session, and optional
// interfaces beside it. It is for authors of transports. Users of package collective need
// it only for the names of calls and errors.
//
// A transport moves bytes from a Send to the Recv with the same Envelope, and compares
// their Calls. It ends as a whole: by Revoke, whose cause EncodeCause carries to the other
// ranks, or by Close. A transport may also implement Sharer (shared memory) and Meter
// (throughput of links). The contract of all transports, ten rules, is the comment of
// Transport. Package testing/transporttest checks the contract for any implementation;
// transport/mem is the shortest implementation.
package transport

import "context"

// Envelope is the header of every message. It says to which call of which communicator the
// message belongs, and how its sender describes that call.
type Envelope struct {
	// Comm is the ID of the communicator; 0 is the communicator with which a session
	// starts.
	Comm uint64
	// Seq is the number of the collective call within the communicator. Send and Recv use
	// the upper half of the range for their tags.
	Seq uint32
	// Call is compared at the receiver. It is never used for matching.
	Call Call
	// Priority is the urgency of a message. It is not sent. If several Sends to a rank wait for
	// each other, a Send of higher priority may go first. Signals have priority 0.
	Priority int32
}

// Signal is a short advisory message outside all calls; it may be lost.
type Signal struct {
	From int    // rank of the sender
	Data []byte // at most MaxSignal bytes; belongs to the receiver
	// Overtook is set if the signal may have overtaken earlier messages of the same pair.
	Overtook bool
}

// Transport carries messages between the ranks 0..n-1 of one epoch. The communicator above
// it knows its own rank and n.
//
// The contract, which testing/transporttest checks for every implementation:
//
//  1. A call returns when its buffer may be reused. Recv is Post followed by Wait. Send may
//     return before the message is received, and may block until the receiver asks for the
//     message. A message matches a receive by (from, Comm, Seq). A receive is for exactly
//     len(buf) bytes; another length or another Call is a *MismatchError at the receiver
//     and revokes.
//  2. Messages of one (pair, Comm, Seq) arrive in the order of the Sends. All other
//     messages are independent: a receive never waits until an earlier, unrelated message
//     is received (no head-of-line blocking). A message of zero length is a message.
//     A rank may send to itself.
//  3. All methods are safe for concurrent use. The exception is two Sends, or two Recvs, of
//     one (pair, Comm, Seq) at the same time: their order would be undefined.
//  4. No call outlives its ctx, its peer, or a revocation at either end: it returns nil or
//     an error, and never hangs. A call ended by its ctx revokes, because a part of its
//     message may be in flight.
//  5. Revoke makes every pending and later Send and Recv fail with cause, at every rank
//     that can be reached, in bounded time. The first cause at a rank stays. Revoke is
//     idempotent, never blocks, and carries the cause to the other ranks by EncodeCause.
//     The death of a peer revokes with a *PeerError that names the peer.
//  6. A transport serves one epoch; frames of another epoch never match.
//  7. After an error the receive buffer is undefined, and the send buffer is intact.
//  8. Signal never blocks and may lose its message. The channel of Signals is never closed.
//     A signal that may have overtaken an earlier message of the same pair is marked.
//  9. Close delivers the messages that were sent, ends the transport, waits for its
//     goroutines, and revokes locally with ErrClosed. A peer that waits for a message which
//     the closed rank has never sent gets a *PeerError. Ranks that need nothing more from
//     the closed rank are not revoked.
//  10. Peek sees each message that has arrived and that no receive has asked for, complete or
//     not, the messages of one rank in the order of their arrival. It never takes a message.
type Transport interface {
	// Send sends buf to a rank under e, and returns when buf may be reused.
	Send(ctx context.Context, to int, e Envelope, buf []byte) error
	// Recv fills buf with the next message from a rank under e.
	Recv(ctx context.Context, from int, e Envelope, buf []byte) error
	// Post begins a Recv and returns at once. buf belongs to the transport until Wait
	// returns. Two ranks that both call Post and then Send do not deadlock, although each
	// Send may wait for the other rank's receive.
	Post(from int, e Envelope, buf []byte) Posted
	// Peek waits until a message of one of the ranks in from has arrived that no receive has
	// asked for and for which matches returns true. It returns the sender and the envelope, and
	// leaves the message. It returns rank -1 and no error when stop is closed. An error revokes,
	// also if all these ranks have closed their transports and no message can come; the caller's
	// own rank beside others does not count. matches must not block.
	Peek(from []int, stop <-chan struct{}, matches func(from int, e Envelope) bool) (rank int, e Envelope, err error)
	// Signal queues msg, of at most MaxSignal bytes, for rank to. msg may be reused at
	// once.
	Signal(to int, msg []byte)
	// Signals returns the channel of the signals from other ranks.
	Signals() <-chan Signal
	// Revoke ends all communication at all ranks; see rule 5.
	Revoke(cause error)
	// Close ends the transport at this rank; see rule 9.
	Close() error
}

// Matcher is an optional interface of a Transport, by which package collective tells a message that
// was never sent from a message in flight. Without it, no Send or Recv is found to be a deadlock.
type Matcher interface {
	// Awaits reports whether a receive from a rank under e has been posted, and no byte of its
	// message has arrived. If a signal of the rank that overtook nothing came before, the rank had
	// not sent the message when it sent the signal.
	Awaits(from int, e Envelope) bool
	// Full reports whether this rank reads no further message of a rank until it posts a receive
	// from that rank.
	Full(from int) bool
}

// Posted is a receive in progress.
type Posted interface {
	// Wait waits for the end of the receive, as Recv does. It must be called exactly once,
	// also if the message is no longer of use.
	Wait(ctx context.Context) error
}

// MaxSignal is the maximum length of a message of Transport.Signal, in bytes.
const MaxSignal = 512
