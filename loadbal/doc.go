// Package loadbal decides how many microbatches of a step each peer computes.
//
// Every function is pure integer arithmetic on values that all peers share, so
// that every peer comes to the same answer without a coordinator.
//
// A Policy makes shares follow the times that the ranks measured. Each rank of a session
// has one of its own and feeds it the same reports:
//
//	policy, err := loadbal.New("auto")
//	policy.Begin(make([]int64, ranks)) // no speeds are known
//	shares, _ := policy.Next(nil, microbatches)
//	for {
//		... // compute shares[rank] microbatches, gather a Report of each rank
//		shares, why = policy.Next(reports, microbatches)
//	}
//
// Below the policies is a model: a share of b microbatches takes a rank a + c*b. Optimum
// finds the best whole shares for it.
package loadbal
