// Package hangs checks that the flight records of a job name the peer that holds the others up. It consists of tests. Members make
// calls over a network in virtual time (testing/simnet). At a random moment, determined by a seed, one of several causes affects
// one member, the culprit. The test then takes the records of the members that can answer, passes them through their JSON form, and
// judges them by collective/flight. A cause that ends or stops the culprit's process is known to the judge in
// some runs, as a launcher knows it, and in others not. docs/internals/flight.md tells what is modelled.
//
//	go test ./testing/hangs                              some seeds of each cause
//	go test -v ./testing/hangs -seeds=25                 the table
//	go test -v -run 'Causes/slow_link' ./testing/hangs -seeds=1 -first=17
package hangs
