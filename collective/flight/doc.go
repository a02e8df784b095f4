// Package flight is the flight record of collective calls: each rank keeps its last calls in a Ring, which costs less than 100 ns
// a call and is always on, and Judge finds in the records of all ranks which rank holds the others up. It is pure: it does no I/O
// and asks no clock.
//
// A Ring is filled by package collective (Options.Record). Its Record is a value with a JSON form, which is made without the help of
// the program or of a call. Judge takes the records of the ranks that answered and what is known of the
// others (Job). It compares the calls by communicator and sequence number, as the ranks must make the same calls in the same
// order.
//
// See docs/internals/flight.md.
package flight
