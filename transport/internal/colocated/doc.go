// Package colocated makes streams between processes of one host that share a key, as those
// of one launcher do. A stream costs a Unix socket and one hello, some 0.1 ms in all, where a
// connection with a TLS handshake takes milliseconds.
//
//	s, err := colocated.Listen(id)            // once per process, before others hear of id
//	s.Serve(key, colocated.Taker{Admit: ..., Take: ...}) // as soon as the key is known
//	st, err := s.Dial(ctx, peer, kind)
//
// # Where a process listens
//
// At a Unix socket in the abstract namespace, whose name follows from the process's ID. So
// nobody has to be told of it, whoever is in another network namespace does not find it, and
// the kernel takes it back however the process ends. It listens before it serves: those who
// come too early wait in the socket's queue.
//
// # Who may connect
//
// The kernel tells the user at the other end (SO_PEERCRED), who must be one's own. The one
// who dials says who it is, whom it wants and what for, and proves that it holds the key; the
// other proves the same before the first byte that it sends:
//
//	dials                                            listens
//	hello: kind, both IDs, number, HMAC(key, ...) -> checks; closes if anything differs
//	what it has to say                            ->
//	                                              <- answer: code, HMAC(key, hello's HMAC, code)
//	                                              <- what it has to say
//
// Nobody waits for the answer before it sends; it is checked before anything is read. The
// numbers of a process count up, and each counts once (window), so that a hello that was
// overheard is of no use. A code that is not zero says why the stream is refused.
//
// The key says that a process is of the launcher, and not which one: each could pass itself
// off as another one, as processes of one user can do anyway by looking into each other's
// memory.
package colocated
