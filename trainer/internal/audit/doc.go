// Package audit finds members whose gradients are not what they ought to be: those of a
// machine with bad memory, of a program that was changed, of one that cheats. In exact mode
// (package exact) a microbatch has the same integers whoever computes it, so any member can
// compute another's part of a step again, and compare bits. The package is pure; package
// trainer moves what it needs between the members.
//
// # The part that a member claims
//
// A ring shows nobody what a member has put in: it sees partial sums. So each member tells
// a fingerprint of its contribution C, the integer sum over its microbatches, which is linear:
//
//	F(C) = sum of r[i] C[i]  modulo  p = 2^61 - 1
//
// The random coefficients r are those of a seed that nobody knows before all contributions
// are summed: it is a hash of a nonce of every member, which the tail of the step brings. As
// F is linear, the fingerprints of all members add up to that of the sum that all have, and
// two contributions that differ in one bit have one fingerprint with probability 2/p. A
// fingerprint takes one multiplication an element and step, a part of what the gradient of a
// single microbatch takes.
//
// # A step
//
//	step s    all        compute their shares, reduce the sums, keep a copy of the parameters
//	          auditor    with probability RATE, by dice of its own: chooses a member, computes
//	                     the share of that member again while sums are on their way
//	tail s    all        tell a nonce, from which the seed of s follows
//	tail s+1  all        tell F(C) of step s
//	          auditor    compares F of what it has computed with what the member has told, and
//	                     the sum of all fingerprints with F of the sums
//	tail s+2  auditor    tells that it accuses; all leave the session for the next one
//	entry     all        learn whom, and compute the share from their copies of the parameters
//	                     of s; the values are gathered, and Judge says who is wrong
//
// Nobody but the auditor knows of an audit before the fingerprint has been told, so there is
// no step in which cheating is safe. An audit changes neither shares nor sums: the weights are
// those without it. One that is under way when members change is dropped.
//
// # Who is wrong
//
// Judge takes the value that more than half of those who can compute the share have come to.
// A member that told another fingerprint is named, an auditor that accused it of another, and
// whoever votes for another; all are kicked. So as long as most members are honest, nobody
// is put out by a false accusation. Where there is no such majority, as with two members that
// stay with what they said, both are named, nobody is put out, and the job goes on.
//
// # Costs
//
// Of parameters with N elements in K microbatches a step: one fingerprint of N elements and a
// copy of N a member and step; RATE times the computing of a share a member and step; three
// copies of the parameters and one contribution of memory; 16 bytes a member in the tail. A
// member that cheats in each step is found after 1/RATE steps on average, and within 1,000
// steps at RATE 0.01 with probability 1 - 4e-5; a single wrong step is found with probability
// RATE.
//
// # What it does not find
//
// A member that runs a changed elrun can tell the fingerprint of an honest contribution and put
// another into the sums, or spoil sums of others that pass through it. Then the fingerprints
// do not add up, which the audit says, but not who it was. The loss that a member reports is
// not audited.
package audit
