// Package loadbal decides how many microbatches of a step each peer computes.
//
// Every function is pure integer arithmetic on values that all peers share, so
// that every peer comes to the same answer without a coordinator:
//
//	shares := loadbal.Equal(32, 3)        // 11 11 10
//	first, end := loadbal.Range(shares, 1) // 11 22: what rank 1 computes
//
// After a change of the group in the middle of a step, ranks hold microbatches that
// they have computed. Assign leaves these where they are and shares out the rest.
package loadbal

// Equal splits microbatches among n ranks as evenly as whole numbers allow: shares
// differ by at most one and lower ranks get the larger ones. The result has n
// elements that add up to microbatches. It panics if n < 1 or microbatches < 0.
func Equal(microbatches, n int) []int {
	if n < 1 || microbatches < 0 {
		panic("loadbal: Equal needs at least one rank and no negative number of microbatches")
	}
	shares := make([]int, n)
	for r := range shares {
		shares[r] = microbatches / n
		if r < microbatches%n {
			shares[r]++
		}
	}
	return shares
}

// Range returns the microbatches [first, end) of rank when the ranks take theirs
// one after the other. The ranges of all ranks cover every microbatch once.
func Range(shares []int, rank int) (first, end int) {
	for _, s := range shares[:rank] {
		first += s
	}
	return first, first + shares[rank]
}
