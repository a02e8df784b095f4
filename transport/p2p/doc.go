// Package p2p is the transport over libp2p, between processes of one host or of many. Only this
// package, the wiring in launch, and transport/ticket for keys and signatures depend on libp2p.
//
//	h, err := p2p.Listen(ctx, p2p.Config{Job: "mnist"})
//	// publish h.ID() and h.Addrs(), collect those of the other members
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
// hosts carries their control streams, their bulk streams and, per epoch, two streams of the data
// plane. One of the data streams is replaced by a direct connection where that is possible.
//
// # Words
//
// A peer is one of these, by what this host knows of it:
//
//   - stranger: connected, and its right to join is not proven;
//   - outsider: its right is proven, but it is in no view of this host;
//   - member: introduced to this host (the gate), or, for the throttle, in the current view;
//   - banned: put out by Forget, refused for good.
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
// Without an admission policy a stranger is refused right after the security handshake. With one it
// is put among the strangers (strangers.go): few connections, for a short time, with one stream
// each. On that stream only the request is read, some 200 bytes, and the answer has 50. A signature
// is verified only if the request names a key that is known here. Before that a stranger has cost
// one handshake. The newcomer checks the member's answer likewise, and ignores an answer that fails
// the check. The number of connections in the handshake is limited per source address
// (halfopen.go).
//
// # Outsiders
//
// Members compute while outsiders connect, so the work for outsiders is rate-limited (throttle.go).
// Each outsider has a token bucket of 524,288 tokens. All buckets together are refilled at 262,144
// tokens a second, in equal parts. A byte that is read costs one token, a read of the connection
// 128 more, a control message 1,024, and a stream 4,096. An outsider without tokens is not read
// (backpressure) until it has some again or is in a view. Each 256 bytes that are sent to it earn a
// token, so that the copy of a large state is not held up. Over QUIC and relays only messages and
// streams cost tokens.
//
// All limits on strangers, outsiders and members are in one table in docs/elastic.md.
//
// # Failure detection
//
// Send and Connect fail at once with elastic.ErrGone when nobody listens any more at the address
// where the peer was found. After any other failure they retry until their ctx ends, as peers that
// start at the same time may not listen yet, or may not know each other. Control messages are
// acknowledged, so that a connection on which nothing comes back is given up within a second
// (Send). A host that listens on many interfaces is dialled on all of them, on loopback first. Once
// it was reached at one address, only that address is dialled, until a dial to it fails for another
// reason than a refusal.
//
// QUIC reports no refused connections: a killed peer looks like a peer that is cut off.
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
