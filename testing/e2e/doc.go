// Package e2e holds the end-to-end tests: the real elrun, built for them, starts real
// processes, which are killed, stopped and interrupted. The programs that it starts are
// this test's own binary in one of the roles of peer_test.go.
//
// These are the only tests that wait for real time to pass, and then for a condition,
// with limits that only a hang exceeds.
package e2e
