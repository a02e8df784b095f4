// Package collective provides MPI's collective calls to a fixed group of ranks.
//
// A communicator (Comm) is made over a transport.Transport, by the session of an elastic
// group or by testing/cluster. Package collective/transport is for authors of transports.
// Calls are generic functions over a communicator, because methods in Go cannot be generic:
//
//	sum := make([]float32, len(grad))
//	err := collective.AllReduce(ctx, comm, sum, grad, collective.Sum[float32])
//
// # Order
//
// All ranks of a communicator make the same calls in the same order, from one goroutine at a time.
// A function whose name begins with I starts a call: it fixes the place of the call in that order,
// and returns a Handle. Several calls may be in progress, and blocking calls may follow. Dup
// returns a communicator with an independent order, for a second goroutine.
//
// If a collective call begins while its communicator is in a blocking call, two goroutines use the
// communicator. The ranks might execute the two calls in different orders and combine vectors that
// do not belong together. Therefore the second call is refused with ErrConcurrent and revokes; at
// every rank the error names the rank and both calls. If the calls of two goroutines never coincide
// at any rank, the mistake is not detected.
//
// Send and Recv match by (pair, tag). They have no place in the order: several goroutines may make
// them, also during any other call. Calls of one pair, tag and direction are executed one after the
// other, in the order in which they began. Ranks whose only calls for 5 seconds are blocking ones that
// wait for each other get a *DeadlockError. So a goroutine that receives while the rest of the program
// computes uses IRecv or AnySource, which are never taken for a deadlock.
//
// A collective call returns nil only after every rank of the communicator has entered it with the
// same arguments. MPI promises less: the root of a broadcast may return before other ranks have
// entered it. For this guarantee, each rank sends lg n empty messages in a call with a root. The
// guarantee makes the following rules for errors possible.
//
// # Goroutines
//
// A blocking call runs in the goroutine of its caller. A non-blocking call has a goroutine of its
// own. In shared memory the non-blocking calls of a communicator share one goroutine instead, which
// runs them one after the other in their order. For each transport a watchdog answers the signals
// of other ranks and looks for stalls. Close of the communicator from New waits for all these
// goroutines.
//
// # Errors
//
// If ranks make different calls, all of them get a *MismatchError that names two of the ranks. If
// the calls exchange messages, the ranks find the mismatch at once. Otherwise the watchdogs find it
// after about a quarter of a second. The result is never a hang and never wrong numbers. The loss
// of a peer is a *PeerError at every rank.
//
// Any error of a call revokes the communicator and all others over the same transport; a cancelled
// context and a bad argument are such errors, too. Every pending and later call then fails at every
// rank with errors.Is(err, ErrRevoked), and the first cause is passed on to all ranks. After an
// error the destination is undefined and the source is intact, unless both are one slice. Send is
// an exception: it may return nil before the matching Recv finds a mismatch. Then the next call of
// the sender returns the error.
//
// # Buffers
//
// Slices belong to the call until it returns, or until its Handle is done. dst and src may
// be the same slice if the comment of the call says so. The following are an ErrArgument:
// lengths that do not fit the call, a dst and a src that overlap in another way, a vector
// from Alloc after its Free, and a nil context, communicator or reduction. Vectors of
// different calls in progress are not compared: the caller must ensure that they do not
// overlap.
package collective
