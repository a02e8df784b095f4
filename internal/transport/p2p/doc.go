// Package p2p is the transport over libp2p, between processes on one host or many. It
// is the only package besides the wiring in launch that knows libp2p.
//
//	h, err := p2p.Listen(ctx, p2p.Config{Job: "mnist"})
//	// tell the others h.ID() and h.Addrs(), learn theirs
//	err = h.AddPeers(members)
//	g, err := elastic.Join(ctx, elastic.Config{Control: h, Connector: h, ...})
//
// A Host has a fresh identity and lets in only the members it was told of: a stranger
// is refused right after the security handshake. A connection between two hosts
// carries their control streams and, per epoch, two data streams.
//
// # Streams of a pair
//
// The higher rank opens both streams of a pair; each begins with a hello in both
// directions that must agree on job, epoch, lineage and rank.
//
//   - The data stream carries messages, signals and bye. A signal must not overtake an
//     earlier message, and bye says that all messages came before it: so they share
//     one stream.
//   - The urgent stream carries revocations, the announcement of a bye and the answer
//     to it. These must not wait behind messages that a paused reader leaves in the
//     data stream, nor behind a Send that is blocked halfway through a frame.
//
// A rank that is revoked writes the cause on every urgent stream and resets its data
// streams, in this order. A rank that sees a data stream break therefore waits a moment
// for the urgent stream to tell why; only if that ends too, as with the death of the
// peer's process, or says nothing, is the peer itself blamed.
//
// A rank that closes writes bye behind its messages and waits for the answer, which
// says that the peer has taken them in: a connection that is closed with bytes under
// way may lose them, as libp2p closes TCP with a reset. For the same reason a rank that
// was revoked waits, before it closes, until each peer has answered the revocation or
// sent its own: one that saw only the end would blame the messenger.
package p2p
