// Package stalls checks that a job which stands still says because of whom. It consists of
// tests: members train over a network in virtual time (testing/simnet), at a seeded
// moment one of several causes sets in at one of them, and what the others write to the
// event log is judged. It must name that member and no other, soon, with what is known of
// what it does.
//
//	go test ./testing/stalls                              some seeds of each cause
//	go test -v ./testing/stalls -seeds=25                 the table
//	go test -v -run 'Causes/slow_link' ./testing/stalls -seeds=1 -first=17
//
// Flags of this package, after its path:
//
//	-seeds=N     runs of each cause, instead of 5
//	-first=S     seed of the first of them, instead of 1
//
// # What counts
//
// A member is right that within 2 seconds of the moment at which the cause sets in has
// written a stall event which names the culprit alone. Where the culprit falls silent,
// the group puts it out after a second; then the lost event counts as well. A stall event
// that names anybody else, at any time, is wrong, whatever stands beside it.
//
// Steps take about a tenth of a second and vary by a factor of five, so that limits which
// were learned too eagerly, or are too tight, would show.
package stalls
