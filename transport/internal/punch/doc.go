// Package punch finds addresses of UDP by which two hosts behind routers reach each other: UDP
// hole punching (RFC 5128), with connectivity checks as in ICE (RFC 8445) by STUN messages (RFC
// 8489). What it finds is used by QUIC over the same socket.
//
//	s := punch.New(conn)                          // a net.PacketConn, for QUIC to read and to close
//	end := s.Serve(c)                             // a member answers who knows the credential c
//	seen, err := s.Observe(ctx, c, member)        // where this socket is seen by that member
//	m := s.Meet(punch.Meeting{Credential: c, Candidates: theirs, Initiator: true})
//	at, err := m.Found(ctx)
//
// Both sides of a Meet send requests to all addresses at which the other may be. A request opens
// the router that it leaves by, and its answer shows that an address works in both directions.
//
// A socket hears nobody else: a message counts only with the HMAC of a credential, which the
// two have told each other over a connection that is encrypted and authenticated, and of QUIC only
// packets of addresses pass from which such a message came. What strangers send is thrown away
// unread, and is not answered.
package punch
