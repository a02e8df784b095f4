// Package collective gives MPI's collective calls to a fixed group of ranks.
//
// A communicator (Comm) is made over a transport.Transport, by the session of an elastic
// group or by testing/cluster; package collective/transport is for those who write one. Calls are generic functions over it, because Go's
// methods cannot be:
//
//	sum := make([]float32, len(grad))
//	err := collective.AllReduce(ctx, comm, sum, grad, collective.Sum[float32])
//
// # Order
//
// All ranks of a communicator make the same calls in the same order, from one
// goroutine at a time. The forms whose names begin with I start a call, take its
// place in that order, and return a Handle; several may be in progress, and blocking calls
// may follow. Dup gives an independent order to a second goroutine.
//
// A call that begins while its communicator is in a blocking one comes from a second
// goroutine. The ranks might take the two in different orders and combine what does not
// belong together, so it is refused, ErrConcurrent, and revokes: the error names the rank
// and both calls everywhere. Two goroutines whose calls never coincide at any rank cannot be
// told from one.
//
// Send and Recv match by (pair, tag). They have no place in the order and may be made from
// several goroutines and beside any other call. Those of one pair, tag and direction are
// carried out one after the other, in the order in which they began.
//
// A collective call returns nil only after every rank of the communicator has
// entered it with the same arguments. That is more than MPI promises (there a
// broadcast's root may run ahead), costs the calls with a root lg n empty messages,
// and is what makes the next paragraph possible.
//
// # Errors
//
// Ranks that make different calls all get a *MismatchError that names two of them,
// at once if the calls exchange messages, otherwise after a question of a
// quarter of a second: never a hang, never wrong numbers. The loss of a peer is a
// *PeerError at every rank. Any error of a call, a cancelled context and a bad
// argument included, revokes the communicator and all others over the same
// transport: every pending and later call fails at every rank with errors.Is(err,
// ErrRevoked), and the first cause is passed on. After an error the destination
// is undefined and the source intact, unless they are one slice. The two sides of
// a Send and its Recv are the exception: a Send may have returned nil when its
// Recv finds the mismatch, and its rank learns of it by the next call.
//
// # Buffers
//
// Slices belong to the call until it returns, or its Handle is done. dst and src may
// be the same slice where a call says so. Lengths that do not fit the call, a dst and a src
// that overlap otherwise, a vector from Alloc after its Free, and a nil context, communicator
// or reduction are an ErrArgument.
// Vectors of different calls in progress are not compared: that they do not overlap is the
// caller's to see to.
package collective
