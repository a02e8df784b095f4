// Package rpc carries calls between two processes of a program over any stream: a pipe in one
// process, a Unix socket, or TLS. Who is at the other end has been checked by whoever made the
// stream.
//
//	NewServer      answers calls by methods, on any number of streams
//	Dial           says hello on a stream, and returns a Conn on which calls are made
//
// A stream carries frames: a header of 24 bytes, little-endian, and a payload.
//
//	size     uint32  bytes of the payload, at most MaxPayload
//	kind     uint8   hello, call, answer, failure or cancel
//	         uint8   0
//	method   uint16  of a call: which of the server's
//	id       uint64  of a call, and of what belongs to it
//	timeout  uint64  of a call: nanoseconds until its deadline, 0 without one
//
// The caller's first frame is a hello whose payload names the program. The server answers with a
// hello, or a failure that says why not. A call gets one answer or failure, in any order. After a
// cancel nobody waits for either.
//
// A call whose stream ends is lost: it may have been carried out or not, and is not made again
// here. A Codec makes payloads of values, in CBOR (RFC 8949).
package rpc
