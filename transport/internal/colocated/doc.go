// Package colocated makes streams between processes of one host that share a key, such as the
// processes of one launcher. A stream costs a Unix socket and one hello, some 0.1 ms in all. A
// connection with a TLS handshake takes milliseconds.
//
//	s, err := colocated.Listen(id)            // once per process, before others learn of id
//	s.Serve(key, colocated.Taker{Admit: ..., Take: ...}) // as soon as the key is known
//	st, err := s.Dial(ctx, peer, kind)
//
// # Where a process listens
//
// A process listens at a Unix socket in the abstract namespace, whose name is derived from the
// process's ID. So the name need not be sent to anybody, no process in another network namespace
// finds the socket, and the kernel removes it however the process ends. The process listens before
// it serves: connections that come early wait in the socket's queue.
//
// # Who may connect
//
// The kernel reports the user at the other end (SO_PEERCRED), which must be the process's own. The
// dialler sends its ID, the ID of the process that it wants, and the kind of stream, and proves
// that it holds the key. The listener proves the same before the first byte that it sends:
//
//	dialler                                          listener
//	hello: kind, both IDs, number, HMAC(key, ...) -> checks; closes if anything differs
//	data                                          ->
//	                                              <- answer: code, HMAC(key, hello's HMAC, code)
//	                                              <- data
//
// Neither side waits for the answer before it sends. The dialler checks the answer before it reads
// data. The numbers of a process count up, and each is accepted once (window), so that a hello that
// was overheard cannot be replayed. A code other than zero is the reason why the stream is refused.
//
// The key proves that a process belongs to the launcher. It does not prove which process that is:
// each process of the launcher could impersonate another. Processes of one user can do that anyway,
// through each other's memory.
package colocated
