// Package mesh has the session protocol between the members of a group, once for all
// networks: who enters a view with whom, messages and signals, revocation and closing,
// control messages, and requests with long answers. It runs over a Carrier, which only makes
// streams between two identities.
//
//	m := mesh.New(carrier, mesh.Config{Job: "mnist"})
//	g, err := elastic.Join(ctx, elastic.Config{Endpoint: elastic.Endpoint{Self: self, Network: m, Close: m.Close}, ...})
//
// # Who is there
//
// Send and Connect end with an error at once when certainly nobody is there any more
// (elastic.ErrGone), and try again until their ctx ends in all other cases: those who start at
// the same time may not listen yet, or not know each other. Control messages are
// acknowledged, so that a connection on which nothing comes back is given up.
//
// # Streams of a pair
//
// A pair has two streams. The higher rank of a view binds them to it, or opens them, by a hello, which the
// other answers; both must agree on job, epoch, lineage and rank.
//
//   - The data stream carries messages, signals, probes and bye. A signal must not overtake
//     an earlier message, and bye says that all messages came before it: so they share
//     one stream. A probe measures what a message would meet; the reader throws it away.
//   - The urgent stream carries revocations, the announcement of a bye and the answer
//     to it. These must not wait behind messages that a paused reader leaves in the
//     data stream, nor behind a Send that is blocked halfway through a frame.
//
// In a view of up to 16 members all pairs have their streams before Connect returns. In a larger view only
// those have that are a power of two apart in the ring of ranks, and those of a host with its lowest rank
// (plan.go): so a member has about 2 log n of them, and a revocation, which every rank passes on, comes to all
// in log n steps. All other pairs get their streams when one of the two first sends to the other one, or waits
// for it (demand.go). A pair that cannot be made is a loss of the peer, as one that breaks is. A death that
// nobody sees as he has no stream is noticed by the members that watch each other (package elastic).
//
// When all planned streams of a view are there, the ranks of one host may agree to share memory. Its files travel
// over their Unix sockets (share.go), which go on to carry messages. The death of a process of the host is
// reported by that memory first (shm.DeathWatch), some milliseconds before its streams end.
//
// # The end of a view
//
// Each side ends a view on each stream by a last frame, Bye or End. When both have, the stream rests, and
// the next frame on it is the hello of a later view (lane.go).
//
// A rank that is revoked writes the cause on every urgent stream. Then it ends its data streams: by End, or by
// a reset where it is in the middle of a message, so that buffers are free at once. A rank that sees a data
// stream end without a bye therefore waits a moment for the cause on the urgent stream. It blames the peer
// itself only if the urgent stream ends, too, as with the death of the peer's process, or stays silent. Where
// memory is shared, a rank that is revoked ends its death watch first. So a reported death was not
// preceded by a revocation, and nothing has to be waited for.
//
// A rank that closes writes a bye behind its messages and waits for the answer, which says that the peer has
// received them. A connection that is closed with bytes under way may lose them: libp2p closes TCP with a
// reset. For the same reason a rank that was revoked waits, before it closes, until each peer has answered
// the revocation or sent its own. A peer that saw only the end would blame the messenger.
package mesh
