// Package loadbal decides how many microbatches of a step each rank computes, so that a step does
// not wait for its slowest rank.
//
// # Mechanism
//
// A Policy sets the shares of the next step by the compute times of the last one. Each rank of a
// session has a policy of its own and passes it the same reports:
//
//	policy, err := loadbal.New("auto")
//	policy.Begin(make([]int64, ranks)) // no speeds are known
//	shares, _ := policy.Next(nil, microbatches)
//	for {
//		... // compute shares[rank] microbatches, gather a Report of each rank
//		shares, why = policy.Next(reports, microbatches)
//	}
//
// The policies share one cost model: a rank needs the time a + c*b for a share of b microbatches,
// with a fixed part a and a time c for each microbatch. Optimum finds the best whole shares for
// this model. The policies differ in how they learn a and c, and in how readily they change the
// shares. The default policy also tests whether times follow the shares at all (evidence).
//
// # Invariants
//
// All arithmetic is in integers, and every function depends only on its arguments and on earlier
// calls. So all ranks compute the same shares without a coordinator, on any processor. A test fails
// if this package has floating-point numbers.
//
// # Change
//
// A new policy embeds table, sets table.costs in Next and returns its shares through table.set. It
// needs a name in Names and New; the tests of policy_test.go then run with it.
package loadbal
