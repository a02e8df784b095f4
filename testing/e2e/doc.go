// Package e2e has the end-to-end tests. They build elrun, let it start real processes, and kill,
// stop and interrupt these processes. The programs that elrun starts are mostly the test binary
// itself, in one of the roles in peer_test.go.
//
// A test of this package waits in real time until a condition is true. The limit of a wait is so
// long that only a hang exceeds it.
package e2e
