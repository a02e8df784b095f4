// Package p2p is the carrier of package mesh over libp2p and sockets, between processes of one host
// or of several hosts. Only this package, the wiring in launch, and transport/ticket, for keys and
// signatures, depend on libp2p.
//
//	h, err := p2p.Listen(ctx, p2p.Config{Job: "mnist"})
//	// publish h.ID() and h.Addrs(), collect the IDs and addresses of the other members
//	err = h.Introduce(members)
//	g, err := elastic.Join(ctx, elastic.Config{Endpoint: h.Endpoint(self), ...})
//
// A newcomer with the ticket of a running job asks for admission first:
//
//	member, err := h.Identify(ctx, t.Addrs[0])              // for one of the ticket's addresses
//	err = h.Prove(ctx, member, t.Credential(string(h.ID()))) // and then at each other member
//
// A Host has a fresh identity. It admits the members that Introduce names, and the newcomers that
// its admission policy accepts (Config.Admission, SetAdmission). One libp2p connection between two
// hosts carries their control streams, their bulk streams and two streams of the data plane
// (package mesh). Where possible, a direct connection replaces one of the two, the data stream.
//
// # Words
//
// A host puts each peer into one of these classes:
//
//   - stranger: a connected peer that has not proven its right to join;
//   - outsider: a peer that has proven its right to join, but is in no view of this host;
//   - member: for the gate a peer that was introduced to this host; for the throttle a peer in the
//     current view;
//   - banned: a peer for which Forget was called; the host refuses the peer for good.
//
// # Parts
//
// A Host is made of parts, each a type with its own state and lock in a file of its own: tasks
// (lifetime), conns and gate (libp2p's connections, and who may have one), relays and puncher
// (paths where no direct one exists), dialer (streams to peers), listener and portMap (own
// addresses), addressBook (addresses of others), paths, routes and watch (direct connections),
// admission, strangers and throttle (newcomers). A part calls only the parts before it; build.go
// puts them together.
//
// # Within a host
//
// Hosts in one network namespace with the same Config.HostKey, such as the peers of one launcher,
// make no libp2p connection with each other: each stream is a Unix socket (local.go). The sections
// below are about connections between other hosts.
//
// # Strangers
//
// Without an admission policy the host refuses a stranger right after the security handshake. With
// a policy the host accepts a limited number of strangers, each for a short time and with one
// stream (strangers.go). On that stream the host reads only the request, some 200 bytes, and sends
// an answer of some 50 bytes. It verifies a signature only if the request names a key that it
// knows. Up to that point a stranger costs one handshake. The newcomer verifies the member's
// answer, too, and ignores an invalid answer. The number of connections in the handshake is limited
// per source address (halfopen.go).
//
// # Outsiders
//
// Members compute while outsiders connect, so the work for outsiders is rate-limited (throttle.go).
// Each outsider has a token bucket of 524,288 tokens. All buckets together are refilled at 262,144
// tokens a second, in equal parts. A byte that is read costs one token, a read of the connection
// 128 more, a control message 1,024, and a stream 4,096. The host does not read from an outsider
// without tokens (backpressure), until the outsider has tokens again or is in a view. Every 256
// bytes that the host sends to an outsider earn the outsider a token, so that acknowledgements do
// not slow down the copy of a large state. Over relays only messages and streams cost tokens.
//
// All limits on strangers, outsiders and members are in one table in docs/strangers.md.
//
// # Failure detection
//
// Send and Connect fail at once with elastic.ErrGone when all dialled addresses of the peer refuse
// the connection. After any other failure they retry until their ctx ends, because peers that start
// at the same time may not listen yet, or may not have introduced each other. Control messages are
// acknowledged, so that Send gives up a connection on which nothing arrives. A host that listens on
// several interfaces is dialled at all their addresses, at loopback first. Once the host was
// reached at one address, only that address is dialled, until a dial fails for another reason than
// a refusal.
//
// Paths through routers (punch.go) report no refused connections: a killed peer cannot be told from
// a peer behind a broken link.
//
// Where Config.Relay allows it, members that cannot connect reach each other through a relay, a
// member with which both have a connection (relay.go).
//
// # Streams of a pair
//
// Package mesh has the session protocol. After the hellos on a data stream both sides send their
// offer: the addresses of their direct connections, and a ticket (paths.go). One side dials the
// best path that both want, which is a Unix socket within a host, or TCP with TLS under the same
// identities. If that fails the other side dials (negotiate.go). The direct connection then becomes
// the data stream. If no side succeeds the libp2p stream stays the data stream.
package p2p
