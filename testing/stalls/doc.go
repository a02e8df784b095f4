// Package stalls checks that a job which stands still reports which member is the cause. It consists of tests. Members train over
// a network in virtual time (testing/simnet). At a random moment, determined by a seed, one of several causes affects one of
// them, the culprit. The test then judges the event logs of the others. They must name the culprit and no other member, soon, and
// say what is known about its activity.
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
// A member counts as right if it writes a stall event that names only the culprit, within 2 seconds of the beginning of the cause.
// If the culprit falls silent, the group puts it out after a second; then the lost event counts as well. A member counts as
// wrong if it writes a stall event that names another member, at any time, whatever else it writes.
//
// Steps take about a tenth of a second and vary by a factor of five. So the tests find thresholds that are too low, or that are
// lowered too fast.
package stalls
