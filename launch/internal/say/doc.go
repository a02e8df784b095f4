// Package say makes the lines that people see at a launcher, from facts and events, and prints them.
// It runs in the launcher, and in a program that runs alone, without one.
//
// A Reporter owns a Console, which writes the output of peers, the launcher's own lines and the
// progress line without mixing them, and waits for no reader that is stuck. A MembershipLog makes
// the lines about joins, losses and leaves; Stalls those about members that hold up others; a
// JoinQueue those about newcomers that wait; a FailureReport those about processes that failed. These
// four do no I/O and read no clock: the launcher's loop feeds them and asks for the lines that are due.
package say
