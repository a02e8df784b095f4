// Package rpc carries calls between two processes of a program over any stream: a pipe within one
// process, a Unix socket, or TLS. The code that makes the stream has to authenticate the other end.
//
//	NewServer      answers calls with methods, on any number of streams
//	Dial           exchanges hellos on a stream and returns a Conn, which makes calls
//
// A stream carries frames: a header of 24 bytes, little-endian, and a payload.
//
//	size     uint32  bytes of the payload, at most MaxPayload
//	kind     uint8   hello, call, answer, failure or cancel
//	         uint8   0
//	method   uint16  of a call: index of the method in the server
//	id       uint64  of a call, and of its answer, failure or cancel
//	timeout  uint64  of a call: nanoseconds until its deadline, 0 without one
//
// The caller's first frame is a hello whose payload names the program. The server answers with a
// hello, or with a failure that gives the cause. Each call gets one answer or failure; answers may
// come in any order. After a cancel the caller ignores both.
//
// If the stream of a call ends, the call is lost: its method may or may not have run, and this
// package does not repeat the call (at-most-once semantics). A Codec encodes values as payloads, in
// CBOR (RFC 8949).
package rpc
