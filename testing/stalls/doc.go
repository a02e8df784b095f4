// Package stalls checks that the members of a stalled job report which member is the cause. It
// consists of tests. Members train over a network in virtual time (testing/simnet). At a random
// moment, determined by a seed, one of several causes affects one member, the culprit. The test
// then judges the event logs of the other members. They must soon name the culprit and no other
// member, and report what the culprit does.
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
// A member counts as right if it writes a stall event that names only the culprit, within 2 seconds
// of the beginning of the cause. If the culprit becomes silent, the group puts it out after a
// second. Then the lost event counts as well. A member counts as wrong if it writes, at any time, a
// stall event that names another member.
//
// Steps take about a tenth of a second, and their times vary by a factor of five. So thresholds
// that are too low, or that decrease too fast, cause false alarms in the tests.
package stalls
