// Package mesh has the session protocol between the members of a group, for all networks. It lets
// members enter a view together, carries their messages and signals, and revokes and closes views.
// It also carries control messages, and requests with long answers. It runs over a Carrier, which
// only makes streams between two identities.
//
//	m := mesh.New(carrier, mesh.Config{Job: "mnist"})
//	g, err := elastic.Join(ctx, elastic.Config{Endpoint: elastic.Endpoint{Self: self, Network: m, Close: m.Close}, ...})
//
// # Peers that are gone
//
// Send and Connect fail at once if the peer is certainly gone (elastic.ErrGone). In all other cases
// they try again until their ctx ends: peers that start at the same time may not listen yet, or may
// not know each other. Control messages are acknowledged, so that the mesh can give up a connection
// that delivers nothing.
//
// # Streams of a pair
//
// Each pair of ranks has two streams. If the pair has no streams yet, the higher rank opens them.
// The higher rank then binds the streams to the view by a hello, which the lower rank answers. Both
// must agree on job, epoch, lineage and rank.
//
//   - The data stream carries messages, signals, probes and bye. A signal that overtakes nothing
//     proves which messages were sent before it, and bye says that all messages came before it: so
//     they share one stream. A probe is sent as a message is, to measure the link; the reader
//     discards it.
//   - The urgent stream carries revocations, the announcement of a bye and the answer
//     to it. These must not wait behind messages that a paused reader leaves in the
//     data stream, nor behind a Send that is blocked halfway through a frame. A signal behind such
//     a Send goes here, too, and is marked at the receiver.
//
// In a view of up to 16 members all pairs have their streams before Connect returns. In a larger
// view only two kinds of pairs have them: ranks whose distance in the ring of ranks is a power of
// two, and each rank with the lowest rank of its host (plan.go). So a member has streams with about
// 2 log n others, and a revocation, which every rank passes on, reaches all in log n hops. Any
// other pair gets its streams when one of its ranks first sends to the other, or waits for a
// message from the other (lazypairs.go). If a pair cannot be made, the peer counts as lost, as if
// its streams had broken. A member may die while no other member has a stream with it. The members
// that watch each other notice that death (package elastic).
//
// When all planned streams of a view are there, the ranks of one host may agree to share memory.
// They pass the files of the memory over their Unix sockets (share.go), which also carry messages.
// When a process of the host dies, shm.DeathWatch reports the death through that memory, some
// milliseconds before the streams of the process end.
//
// # The life of a stream
//
// A stream of a view is kept by a lane. In each direction the frames of a view stand between a
// hello and a last frame, and both sides must agree on each change:
//
//	opened --hello, answer--> bound --Bye or End from both--> idle --hello, answer--> bound ...
//	bound  --an error, or the view ends in the middle of a frame--> reset
//	idle   --the peer is no member of the next view, or Close--> closed
//
// One goroutine reads a lane from its beginning to its end. While the lane is bound, the goroutine
// fills the mailbox of that view. While the lane is idle, the goroutine waits for a hello. So a
// frame can only reach the view whose hello came before the frame, and frames need no epoch.
//
// # Parts
//
// Mesh connects parts, each with its own lock:
//
//   - lifetime counts the goroutines and ends them;
//   - controlPlane has the control streams, and eventQueue has the messages that came over them;
//   - requests has the requests with long answers; congestionWindow bounds their bytes in flight.
//     There is one for elastic, and one for the questions of carriers;
//   - viewTable has the views by hash, also those that are over;
//   - binder and lanes make, bind and keep the streams of views;
//   - hostMemory has the files and the memory that the processes of a host share.
//
// For each view there is an attempt, which gathers the streams, then a Transport with a pair for
// each rank, and lazyPairs for the pairs that are made later. No part waits for a peer with its
// lock held.
//
// # Goroutines
//
//   - One goroutine for each lane reads the stream, over all views (binder.serve).
//   - For each pair of a view one goroutine writes signals and probes, and one ends the pair
//     (pair.finish); both end with the view.
//   - While Connect enters a view, one goroutine for each stream that it dials; later one for each
//     pair that is made on demand (lazyPairs.make).
//   - One goroutine for each control stream reads it, and one delivers all events in one order
//     (eventQueue).
//   - The carrier calls take in a goroutine for each stream that a peer opens.
//
// A call of Send writes in the goroutine of its caller, when the writerQueue of the stream gives it
// its turn.
//
// # The end of a view
//
// Each side ends a view on each stream by a last frame, Bye or End. When both sides have sent their
// last frame, the stream is idle, and the next frame on it is the hello of a later view (lane.go).
//
// A rank that is revoked writes the cause on every urgent stream. Then it ends its data streams: by
// End, or by a reset where it is in the middle of a message, so that buffers are free at once. So a
// rank that sees a data stream end without a bye waits a moment for the cause on the urgent stream.
// It blames the peer itself only if the urgent stream stays silent or ends, too, as it does when
// the peer's process dies. Where memory is shared, a rank that is revoked ends its death watch
// before anything else. So no revocation precedes a reported death, and a rank that gets such a
// report need not wait for a revocation.
//
// A rank that closes writes a bye behind its messages and waits for the answer, which says that the
// peer has received the messages. Without the wait, messages in flight could be lost, because
// libp2p closes TCP with a reset. For the same reason a rank that was revoked waits, before it
// closes, until each peer has answered the revocation or sent its own: a peer that saw only the end
// of the streams would blame this rank.
package mesh
