// Package discovery finds members of a job in a distributed hash table that the user runs
// (Kademlia, by go-libp2p-kad-dht). It is for newcomers whose ticket names only hosts that have
// gone.
//
//	b, err := discovery.Serve(ctx, discovery.Server{Identity: file, Listen: addrs})  // elrun bootstrap
//	defer b.Close()
//	d, err := discovery.New("/ip4/192.0.2.1/tcp/7474/p2p/12D3...")
//	err = d.Announce(ctx, []string{key}, members)                                    // twice a minute, at members
//	found, err := d.Find(ctx, key)                                                   // at a newcomer
//
// # Servers and clients
//
// Only bootstrap nodes are servers of the table. The elrun processes are clients: they do not
// listen for the table, and connect only for the duration of an announcement or a lookup. So
// strangers in the table reach neither a job nor its launchers. Several bootstrap nodes that know
// each other distribute the records by the rules of Kademlia (Maymounkov and Mazières 2002). There
// is no default node: without the address of a node there is no table.
//
// # Records
//
// Only processes that know the key of a ticket can read its record: the holder of the ticket and
// the members (transport/ticket). Both derive a pair of Ed25519 keys and an AES key from the key of
// the ticket.
//
//	name    "/elrun/" public key
//	value   version, number, box, signature of all of these by the private key
//	box     AES-256-GCM of the IDs and addresses of some members, padded to a fixed size
//
// Nodes check signatures, so that only holders of the ticket can make or change its record. Nodes
// learn neither the job nor its members, nor how many members there are. The record with the
// highest number is valid; a new record gets a higher number than the record in the table. A
// result is a hint only: newcomers authenticate members when they connect to them. A node may
// withhold records, or return an old one. A holder of a ticket can announce anything under it, and
// so hide the job from other holders of the same ticket.
package discovery
