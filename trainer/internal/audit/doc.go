// Package audit finds members whose gradients are wrong: because of bad memory, a modified
// program, or cheating. In exact mode (package exact) a microbatch has the same integers wherever
// it is computed, so any member can recompute another member's part of a step and compare bits.
// The package is pure; package trainer moves its data between the members.
//
// # The fingerprint of a contribution
//
// In a ring allreduce members see only partial sums, not the contribution of a single member. So
// each member publishes a fingerprint of its contribution C, the integer sum over its microbatches.
// The fingerprint is a random linear function:
//
//	F(C) = sum of r[i] C[i]  modulo  p = 2^61 - 1
//
// The seed of the random coefficients r is a hash of one nonce per member, which the commit
// record of the step carries. So nobody knows r before all contributions are summed. As F is
// linear, the fingerprints of all members add up to the fingerprint of the total. Two different
// contributions have the same fingerprint with probability at most 2/p. A fingerprint takes one
// multiplication per element and step, a fraction of the gradient of a single microbatch.
//
// # A step
//
//	step s      all       compute their shares, reduce the sums, save a copy of the parameters
//	            auditor   with probability RATE, by a private random number: chooses a member and
//	                      recomputes that member's share while sums are being reduced
//	record s    all       publish a nonce each, from which the seed of s follows
//	record s+1  all       publish F(C) of step s
//	            auditor   compares F of the recomputed share with the member's fingerprint, and
//	                      the sum of all fingerprints with F of the sums
//	record s+2  auditor   announces an accusation; all leave the session for the next one
//	entry       all       learn the accused, recompute the share from their saved parameters of s,
//	                      and gather the fingerprints; Judge decides who is wrong
//
// Here record s is the commit record of step s. Before the fingerprints are published only the
// auditor knows that it audits, so a member that cheats risks an audit in each step. An audit changes
// neither shares nor sums: the weights are the same as without it. An audit under way is dropped
// when the members change.
//
// # The decision
//
// Judge takes the fingerprint on which a majority agrees: more than half of the ranks that can
// recompute the share. It names three kinds of members: the accused, if it published a different
// fingerprint; the auditor, if its accusation has a different fingerprint; and every rank that votes
// for a different fingerprint. Named members are put out. So as long as most members are honest,
// nobody is put out by a false accusation. Without such a majority, for example between two members
// with different results, the accused and the auditor are named, nobody is put out, and the job
// goes on.
//
// # Costs
//
// For parameters with N elements and K microbatches per step: each member computes, in each step,
// one fingerprint of N elements, one copy of N elements, and with probability RATE another share.
// Memory is three copies of the parameters and one contribution; the commit record has 16 more
// bytes per member. A member that cheats in each step is found after 1/RATE steps on average, and
// within 1,000 steps at RATE 0.01 with probability 1 - 4e-5; a single wrong step is found with
// probability RATE.
//
// # Limits
//
// A member that runs a modified elrun can publish the fingerprint of an honest contribution and add
// another contribution to the sums, or corrupt partial sums that it forwards. Then the fingerprints
// do not add up to the total: the audit reports the difference, but cannot name the member.
// The loss that a member reports is not audited.
package audit
