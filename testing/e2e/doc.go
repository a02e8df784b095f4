// Package e2e has the end-to-end tests. They build elrun, which starts real processes, and kill, stop and interrupt these. The
// programs that elrun starts are mostly the test binary itself, in one of the roles in peer_test.go.
//
// A test here waits in real time until a condition is true. The limit for that is so long that only a hang exceeds it.
package e2e
