// Package direct makes connections between two processes that know each other already:
// TCP, with or without TLS, and on one host Unix sockets. It knows nothing of libp2p: who
// is who, and what both want, was told over an authenticated and encrypted connection.
//
//	p, err := direct.Open(direct.Config{IPs: ips, Unix: true}) // once per process
//	// the one who waits tells p.Offer(ticket) to the other
//	w := p.Expect(ticket, tlsConfig)
//	defer w.Cancel()
//	c, err := w.Wait(ctx)
//	// the other, who has the offer
//	to, ok := offer.ByTCP(ip)
//	c, err := direct.Dial(ctx, to, offer.Ticket, tlsConfig)
//
// # Who may connect
//
// A Ticket is made for one connection and told to one peer. It has a number, which the one
// who dials writes first and in the clear, and a key, which it proves to hold. So a port
// knows for whom a connection is before it does any work for it:
//
//	dials                              waits
//	number (16 bytes), 1          ->   looks up who is expected; closes if nobody is
//	[TLS 1.3 handshake, each side checking the certificate of just that peer]
//	HMAC(key, "dial")             ->   compares, closes if it differs
//	                              <-   HMAC(key, "wait")
//
// A number counts once. Without TLS both have proved who they are, and what follows can be
// read and changed by whoever sits on the wire: that is for networks whose user said so.
// With TLS the key is a second proof, besides the certificate. On a Unix socket the kernel
// tells the user at the other end, who must be one's own; a socket of the abstract
// namespace has no name in the file system, so that nothing of it can be left behind.
//
// Strangers cost a goroutine and a descriptor for a few seconds. There are at most
// maxStrangers of them; one more ends the oldest, so that whoever is expected, and says its
// number at once, gets in.
//
// # Several as one
//
// What TCP has under way is bounded by the buffers of its socket, a few MiB on most
// systems, whatever the path could take. So where the round trip is long, the one who dials
// makes several connections, each with a number of its own that follows from the key, and
// says behind each number how many there are. The bytes go round them in stripes
// (bundle.go), those of handshake and proofs as well, so that TLS covers all of them
// together. On a local network there is one connection and nothing of this.
package direct
