// Package direct makes connections between two processes that know each other already: TCP with or
// without TLS, and Unix sockets within a host. It does not depend on libp2p: the two processes have
// exchanged identities and offers over an authenticated and encrypted connection before, or have
// the same launcher.
//
//	p, err := direct.Open(direct.Config{IPs: ips, ID: id}) // once per process
//	// the acceptor sends p.Offer(ticket) to the dialler
//	w := p.Expect(ticket, tlsConfig)
//	defer w.Cancel()
//	c, err := w.Wait(ctx)
//	// the dialler, with the offer
//	to, ok := offer.ByTCP(ip)
//	c, err := direct.Dial(ctx, to, offer.Ticket, tlsConfig)
//
// # Who may connect
//
// A Ticket is made for one connection and sent to one peer. It has a number, which the dialler
// writes first and in the clear, and a key, which the dialler proves to hold. So a port finds the
// Wait of a connection before it does any other work for the connection:
//
//	dialler                            acceptor
//	number (16 bytes), 1          ->   finds the Wait; closes if there is none
//	[TLS 1.3 handshake, each side checking the certificate of just that peer]
//	HMAC(key, "dial")             ->   compares, closes if it differs
//	                              <-   HMAC(key, "wait")
//
// A number is valid once. Without TLS both sides have authenticated each other, but anybody on the
// path can read and change the bytes that follow. So connections without TLS are for networks that
// the user trusts. With TLS the key is a second proof besides the certificate.
//
// # Within a host
//
// A process listens at a Unix socket in the abstract namespace, whose name follows from its ID. So
// no process in another network namespace finds the socket, and the kernel removes it however the
// process ends. The kernel reports the user at the other end (SO_PEERCRED), which must be the
// process's own.
//
// Processes of one launcher share a key (ServeHost), and open streams of any kind without a ticket.
// A stream costs some 0.1 ms, a TLS handshake milliseconds. The two sides derive the ticket from the
// key and from all that the greeting says, so the rest is as above:
//
//	dialler                                            acceptor
//	number (16 bytes), 255, kind, length of ID, ID ->  derives the ticket
//	HMAC(ticket's key, "dial")                     ->  compares
//	                                               <-  HMAC(ticket's key, "wait", "unknown" or "banned");
//	                                                   without the key 32 zeros
//
// The ticket depends on both IDs, so a greeting is good at one process only. It is not checked for
// repetition: who could repeat it has read it at the socket of that process, and so is this process,
// or has its name after its end. The key proves that a process belongs to the launcher, and not which
// process that is: each could impersonate another. Processes of one user can do that anyway, through
// each other's memory.
//
// # Strangers
//
// A connection without a valid number costs a goroutine and a file descriptor for a few seconds.
// There are at most maxStrangers such connections, and maxUnixStrangers within the host. A further
// connection closes the oldest, so that the port still accepts an expected dialler, which sends its
// number at once.
//
// # Several as one
//
// The bytes that TCP has in flight are limited by the buffers of its socket, a few MiB on most
// systems, however much the path could carry. So where the round trip is long the dialler makes
// several connections. Each connection has a number of its own, derived from the key. The dialler
// sends this number, followed by the count of connections. All bytes are striped over them
// (bundle.go), also the handshake and the proofs, so that one TLS session covers all connections.
// On a local network there is one connection.
package direct
