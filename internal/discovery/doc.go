// Package discovery finds members of a job by a distributed hash table (Kademlia, by
// go-libp2p-kad-dht) of the user's own, for newcomers whose ticket names only hosts that are gone.
//
//	b, err := discovery.Serve(ctx, discovery.Server{Identity: file, Listen: addrs})  // elrun bootstrap
//	defer b.Close()
//	d, err := discovery.New("/ip4/192.0.2.1/tcp/7474/p2p/12D3...")
//	err = d.Announce(ctx, []string{key}, members)                                    // twice a minute, at members
//	found, err := d.Find(ctx, key)                                                   // at a newcomer
//
// # Who stores, who asks
//
// Bootstrap nodes are the servers of the table, and nobody else: elruns are clients, which listen
// nowhere for it and connect only as long as an announcement or a question takes. So strangers of
// the table reach neither a job nor its launchers. Several bootstrap nodes that know each other
// share the records by the rules of Kademlia. No node is built in: without an address of one there
// is no table.
//
// # What is announced
//
// A record is for those who know a key: that of a ticket, which its holder and the members know
// (transport/ticket). From it both derive a pair of Ed25519 keys and an AES key.
//
//	name    "/elrun/" public key
//	value   version, number, box, signature of all that under the private key
//	box     AES-256-GCM of the IDs and addresses of some members, filled up to one size
//
// Nodes check signatures, so that nobody who lacks the ticket can make or change its record; they
// learn neither the job nor its members, and not how many there are. The higher number counts;
// who announces takes a higher one than the table has. What is found is a hint: members are
// proven when a newcomer connects with them. A node may keep records back, or show an old one.
// Who holds a ticket may announce what it likes under it, and so hide the job from others that
// have the same ticket.
package discovery
