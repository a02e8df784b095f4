// Package punch finds UDP addresses by which two hosts behind routers reach each other: UDP hole
// punching (RFC 5128), with connectivity checks as in ICE (RFC 8445) by STUN messages (RFC 8489).
// QUIC then uses the address over the same socket.
//
//	s := punch.New(conn)                          // a net.PacketConn, for QUIC to read and to close
//	end := s.Serve(c)                             // a member answers requests with the credential c
//	seen, err := s.Observe(ctx, c, member)        // the external address of this socket, seen by that member
//	m := s.StartChecks(punch.CheckList{Credential: c, Candidates: theirs, Initiator: true})
//	at, err := m.Found(ctx)
//
// Both sides send requests to all candidates, the addresses at which the other side may
// be. A request opens a mapping in the sender's router. Its answer shows that the address works in
// both directions.
//
// A socket ignores all other senders. A message is valid only with the HMAC of a credential, which
// the two sides have exchanged over an encrypted and authenticated connection. QUIC packets pass
// only from addresses that have sent a valid message. Packets of strangers are discarded unread,
// without an answer.
package punch
