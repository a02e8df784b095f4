// Package p2p is the transport over libp2p, between processes on one host or many. It
// is the only package besides the wiring in launch, and the keys and signatures of
// transport/ticket, that knows libp2p.
//
//	h, err := p2p.Listen(ctx, p2p.Config{Job: "mnist"})
//	// tell the others h.ID() and h.Addrs(), learn theirs
//	err = h.Introduce(members)
//	g, err := elastic.Join(ctx, elastic.Config{Endpoint: h.Endpoint(self), ...})
//
// A newcomer with a ticket of a running job has itself let in first:
//
//	member, err := h.Identify(ctx, t.Addrs[0])              // for one of the ticket's addresses
//	err = h.Prove(ctx, member, t.Credential(string(h.ID()))) // and then at each other member
//
// A Host has a fresh identity and lets in only the members it was told of, and those that
// show a right to join to its door (SetDoor). A connection between two hosts carries
// their control streams, bulk streams, and, per epoch, two streams of the data plane, one of
// which makes way for a connection of its own where there can be one.
//
// # Within a host
//
// Hosts with the same Config.HostKey in one network namespace, as the peers of one launcher are,
// make no connection with each other: each stream is a Unix socket (local.go). All that follows
// about connections is of others.
//
// # Strangers
//
// Without a door a stranger is refused right after the security handshake. With one it
// gets into the lobby (lobby.go): few connections, for a short time, with one stream
// each, on which only the request is heard, some 200 bytes, answered with 50. A signature is
// verified only if it says to be of a key that is known here. Until then a stranger has cost a handshake. The newcomer
// checks the member's answer likewise, and what it has not checked it does not listen to. Connections in
// the handshake have a bound for each address that they come from (halfopen.go).
//
// # Outsiders
//
// Who has proved itself and is in no view of this host is an outsider. Members compute
// meanwhile, so outsiders cost them a bounded amount of work (throttle.go): what is read of an
// outsider, its messages and its streams, take tokens from a bucket of its own, of 524,288.
// All outsiders together get 262,144 a second, in equal parts. A byte takes one, a read of
// the connection 128 more, a control message 1,024, and a stream 4,096. Of an outsider
// without tokens nothing is read (backpressure), until it has some again or is in a view.
// What is sent to it earns a token for each 256 bytes, so that the copy of a large state is
// not held up. Over QUIC and relays only messages and streams count.
//
// All limits on strangers, outsiders and members stand in one table in docs/elastic.md.
//
// # Who is there
//
// Send and Connect end with an error at once when nobody listens any more where the peer
// was (elastic.ErrGone), and try again until their ctx ends in all other cases: those who start at
// the same time may not listen yet, or not know each other. Control messages are
// acknowledged, so that a connection on which nothing comes back is given up within a
// second (Send). A host that listens on many interfaces is dialled on all of them, on
// loopback first; once found, only there, until that fails in another way than by being
// refused.
//
// Over QUIC nobody refuses: a peer that was killed is given up as one that is cut off.
//
// Where Config.Relay allows it, members that cannot connect reach each other by way of one
// with which both have a connection (relay.go).
//
// # Streams of a pair
//
// The session protocol is that of package mesh. Behind their hellos on a data stream both
// sides tell where else they can be reached, and with which ticket (paths.go). One of them
// dials the best of it that both want, a Unix socket within a host or TCP with TLS under the
// same identities, or else the other does (turns.go); then that connection is the data
// stream. Where there is none the libp2p stream remains.
package p2p
